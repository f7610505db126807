"""Compression of chunks: text that waits for a slow path is sent as a fraction of its bytes.

A chunk is compressed by itself, so that it can be sent again, and at the fastest level. Of data that does not become
much smaller (images, compressed arrays), only a sample or one chunk is compressed once a megabyte.
"""

from __future__ import annotations

import zlib
from typing import Optional

FEATURE = "deflate"
"""The feature of an end that reads compressed chunks."""
SLOW = 64 * 1024 * 1024
"""Bytes per second: on a faster path, compressing takes longer than sending."""
FASTEST = 128 * 1024 * 1024
"""Bytes per second, before compression, that may be sent: the receiver reads no faster, and would have to keep more."""
LEAST = 8 * 1024
"""The size of the smallest chunk that is compressed, in bytes."""
MOST = 64 * 1024 * 1024
"""Bytes of one message that may be compressed: the receiver keeps a message until it is complete, and a sender that
makes it keep more must send as much."""
_SAMPLE = 4 * 1024
_WORTH = 0.7
"""The largest part of its size that a chunk may keep."""
_SKIP = 15
"""Chunks that are sent uncompressed after a sample, or a whole chunk, that did not become much smaller."""


class Compressor:
    """Compresses the chunks of one direction where it is worth it."""

    def __init__(self) -> None:
        self._skip = 0

    def compress(self, data: bytes) -> Optional[bytes]:
        """Return the compressed chunk, or None if the chunk is to be sent uncompressed."""
        if len(data) < LEAST:
            return None
        if self._skip:
            self._skip -= 1
            return None
        packed = b""
        for piece in (data[:_SAMPLE], data):
            packed = zlib.compress(piece, 1)
            if len(packed) > _WORTH * len(piece):
                self._skip = _SKIP
                return None
        return packed


def decompress(data: bytes, most: int) -> bytes:
    """Return the decompressed chunk. Raise ValueError if it is malformed, or would have more than `most` bytes."""
    reader = zlib.decompressobj()
    try:
        chunk = reader.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not reader.eof or reader.unused_data or not 0 < len(chunk) <= most:
        raise ValueError("a compressed chunk is too large, or is cut off")
    return chunk
