//! Compiles `proto/control.proto` to Rust and to a descriptor set.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// The root of imports, relative to this crate.
const PROTO_DIR: &str = "proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO_DIR}");

    let mut compiler = protox::Compiler::new([PROTO_DIR])?;
    compiler.open_file("control.proto")?;

    // The JSON form is made with the descriptors, which need no comments.
    compiler.include_source_info(false);
    let out_dir = env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    let descriptor_set = Path::new(&out_dir).join("control_descriptor.bin");
    fs::write(descriptor_set, compiler.encode_file_descriptor_set())?;

    // The comments become rustdoc in the generated code.
    compiler.include_source_info(true);
    tonic_prost_build::configure()
        .bytes(".")
        // Clients work over any channel. Only the functions to connect would need tonic's
        // transport.
        .build_transport(false)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
