//! Prints the path of a protobuf compiler, for the variable `PROTOC` of the client's build.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", protoc_bin_vendored::protoc_bin_path()?.display());
    Ok(())
}
