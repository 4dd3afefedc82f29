//! The Atari 2600: one machine, many environments, on CPU threads or a GPU.
