"""Jupyter messages that a hub or a keeper sends in the kernel's place.

compose: makes messages, and reads and splits the text of stream messages; answers: answers requests, with one busy, one
reply and one idle.
"""
