//! A lock-free K-ary sum tree and the prioritized-replay core on top of it.
