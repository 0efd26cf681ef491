//! The examples whose results a test can check.

#[path = "../../examples/controller.rs"]
pub(crate) mod controller;

#[test]
fn the_controller_over_the_embedded_cache_reaches_its_state() {
    controller::main().unwrap();
}
