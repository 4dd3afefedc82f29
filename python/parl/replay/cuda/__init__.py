"""Sum trees and replays in the memory of a CUDA device, made with ``device="cuda"``.

Their kernels are in ``crates/sumtree/kernels``. torch allocates the memory, and all work is enqueued on its
current stream.
"""
