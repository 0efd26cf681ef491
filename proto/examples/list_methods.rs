//! Lists all methods of etcd's services with their message types, from the embedded descriptors.
//!
//! ```sh
//! cargo run -p revstore-proto --example list_methods
//! ```

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use prost::Message;
use prost_types::FileDescriptorSet;

fn main() -> Result<(), prost::DecodeError> {
    let set = FileDescriptorSet::decode(revstore_proto::FILE_DESCRIPTOR_SET)?;
    for file in &set.file {
        for service in &file.service {
            for method in &service.method {
                println!(
                    "/{}.{}/{} {} -> {}",
                    file.package(),
                    service.name(),
                    method.name(),
                    method.input_type(),
                    method.output_type(),
                );
            }
        }
    }
    Ok(())
}
