"""From the bytes of a stream to messages, and back. Nothing here does I/O.

frames: the units of a stream; queues, window, compression: the chunks of one direction, in order, as many as the path
holds; endpoint: one end of an attachment, which goes on after a stream has ended.
"""
