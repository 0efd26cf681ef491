//! Compiles the `.proto` files to Rust and to a descriptor set.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// The root of imports, relative to this crate.
const PROTO_DIR: &str = "proto";

/// All files. No Rust code is generated for a file that is only imported.
const PROTO_FILES: [&str; 12] = [
    "mvccpb.proto",
    "authpb.proto",
    "etcdserverpb/header.proto",
    "etcdserverpb/kv.proto",
    "etcdserverpb/watch.proto",
    "etcdserverpb/lease.proto",
    "etcdserverpb/cluster.proto",
    "etcdserverpb/maintenance.proto",
    "etcdserverpb/auth.proto",
    "v3lockpb.proto",
    "v3electionpb.proto",
    "health.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PROTO_DIR}");

    let mut compiler = protox::Compiler::new([PROTO_DIR])?;
    compiler.include_imports(true);
    compiler.open_files(PROTO_FILES)?;

    // The embedded descriptor set has no comments and positions, because they are not used at run
    // time.
    compiler.include_source_info(false);
    let out_dir = env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    let descriptor_set = Path::new(&out_dir).join("revstore_descriptor.bin");
    fs::write(&descriptor_set, compiler.encode_file_descriptor_set())?;
    // Build scripts of dependents find it in `DEP_REVSTORE_PROTO_DESCRIPTOR_SET`.
    println!(
        "cargo::metadata=descriptor_set={}",
        descriptor_set.display()
    );

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
