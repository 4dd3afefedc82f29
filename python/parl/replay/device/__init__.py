"""Trees and replays whose memory is on a CUDA device: what ``device="cuda"`` makes.

Kernels are those of ``crates/sumtree/kernels``. torch allocates all memory; work goes to its current stream.
"""
