//! Loom models of the engine's protocols.
