//! The tree and the replay on a CUDA device: sources of kernels, which the caller compiles and launches.
//!
//! `kernels/README.md` describes the kernels and who launches them. Each file is compiled by itself as C++17.

/// Names and texts of the files that are compiled.
pub const FILES: [(&str, &str); 4] = [
    ("tree.cu", include_str!("../kernels/tree.cu")),
    ("replay.cu", include_str!("../kernels/replay.cu")),
    ("select.cu", include_str!("../kernels/select.cu")),
    ("episode.cu", include_str!("../kernels/episode.cu")),
];

/// Names and texts of the headers that they include.
pub const HEADERS: [(&str, &str); 6] = [
    ("prelude.cuh", include_str!("../kernels/prelude.cuh")),
    ("tree.cuh", include_str!("../kernels/tree.cuh")),
    ("random.cuh", include_str!("../kernels/random.cuh")),
    ("sample.cuh", include_str!("../kernels/sample.cuh")),
    ("replay.cuh", include_str!("../kernels/replay.cuh")),
    ("draw.cuh", include_str!("../kernels/draw.cuh")),
];

/// Kernels by name, with the file that each is in. Each takes two structs, by value.
pub const KERNELS: [(&str, &str); 22] = [
    ("parl_tree_stamp", "tree.cu"),
    ("parl_tree_scatter", "tree.cu"),
    ("parl_tree_sample", "tree.cu"),
    ("parl_tree_find", "tree.cu"),
    ("parl_replay_draw", "replay.cu"),
    ("parl_replay_gather", "replay.cu"),
    ("parl_replay_stamp", "replay.cu"),
    ("parl_replay_scatter", "replay.cu"),
    ("parl_replay_reserve", "replay.cu"),
    ("parl_replay_publish", "replay.cu"),
    ("parl_replay_write", "replay.cu"),
    ("parl_replay_append", "replay.cu"),
    ("parl_replay_weigh", "replay.cu"),
    ("parl_replay_cut", "replay.cu"),
    ("parl_replay_note", "replay.cu"),
    ("parl_replay_keys", "select.cu"),
    ("parl_replay_evict", "select.cu"),
    ("parl_replay_share", "select.cu"),
    ("parl_replay_select", "select.cu"),
    ("parl_replay_steps", "episode.cu"),
    ("parl_replay_reach", "episode.cu"),
    ("parl_replay_goals", "episode.cu"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_in_its_file_and_every_one_is_named() {
        for (kernel, file) in KERNELS {
            let text = FILES.iter().find(|(name, _)| *name == file).map_or("", |(_, text)| text);
            assert!(text.contains(&format!(") {kernel}(")), "{kernel}");
        }
        let there: usize = FILES.iter().map(|(_, text)| text.matches("PARL_KERNEL(").count()).sum();
        assert_eq!(there, KERNELS.len());
    }
}
