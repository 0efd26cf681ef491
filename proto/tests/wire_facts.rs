//! Compares the compiled descriptors with etcd's names and numbers in `wire_facts.txt`.

use std::collections::BTreeSet;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};

#[test]
fn descriptors_have_the_listed_names_and_numbers() {
    let listed = listed_facts();
    let compiled = compiled_facts();

    let missing: Vec<_> = listed.difference(&compiled).collect();
    let surplus: Vec<_> = compiled.difference(&listed).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "listed but not compiled: {missing:#?}\ncompiled but not listed: {surplus:#?}",
    );
}

#[test]
fn no_name_or_number_is_listed_twice() {
    let lines = listed_lines().count();
    assert_eq!(lines, listed_facts().len());
}

fn listed_lines() -> impl Iterator<Item = &'static str> {
    include_str!("wire_facts.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn listed_facts() -> BTreeSet<String> {
    listed_lines().map(str::to_owned).collect()
}

fn compiled_facts() -> BTreeSet<String> {
    let set = FileDescriptorSet::decode(revstore_proto::FILE_DESCRIPTOR_SET)
        .expect("the embedded bytes are a descriptor set");
    let mut facts = BTreeSet::new();
    for file in &set.file {
        assert_eq!(file.syntax(), "proto3", "{}", file.name());
        for message in &file.message_type {
            add_message(file.package(), message, &mut facts);
        }
        for enumeration in &file.enum_type {
            add_enum(file.package(), enumeration, &mut facts);
        }
        for service in &file.service {
            add_service(file.package(), service, &mut facts);
        }
    }
    facts
}

fn add_message(scope: &str, message: &DescriptorProto, facts: &mut BTreeSet<String>) {
    let name = format!("{scope}.{}", message.name());
    facts.insert(format!("message {name}"));
    for field in &message.field {
        let one_of = field.oneof_index.map_or_else(String::new, |index| {
            let index = usize::try_from(index).expect("an index is not negative");
            format!(" in {}", message.oneof_decl[index].name())
        });
        facts.insert(format!(
            "field {name}.{} = {} {}{}{one_of}",
            field.name(),
            field.number(),
            if field.label() == Label::Repeated {
                "repeated "
            } else {
                ""
            },
            type_name(field),
        ));
    }
    for nested in &message.nested_type {
        add_message(&name, nested, facts);
    }
    for nested in &message.enum_type {
        add_enum(&name, nested, facts);
    }
}

fn add_enum(scope: &str, enumeration: &EnumDescriptorProto, facts: &mut BTreeSet<String>) {
    for value in &enumeration.value {
        facts.insert(format!(
            "value {scope}.{}.{} = {}",
            enumeration.name(),
            value.name(),
            value.number(),
        ));
    }
}

fn add_service(scope: &str, service: &ServiceDescriptorProto, facts: &mut BTreeSet<String>) {
    let stream = |yes| if yes { "stream " } else { "" };
    for method in &service.method {
        facts.insert(format!(
            "method {scope}.{}.{} {}{} -> {}{}",
            service.name(),
            method.name(),
            stream(method.client_streaming()),
            method.input_type().trim_start_matches('.'),
            stream(method.server_streaming()),
            method.output_type().trim_start_matches('.'),
        ));
    }
}

fn type_name(field: &FieldDescriptorProto) -> &str {
    match field.r#type() {
        Type::Message | Type::Enum => field.type_name().trim_start_matches('.'),
        Type::Bytes => "bytes",
        Type::String => "string",
        Type::Bool => "bool",
        Type::Int64 => "int64",
        Type::Uint64 => "uint64",
        Type::Uint32 => "uint32",
        other => panic!(
            "{}: etcd's API has no field of type {other:?}",
            field.name()
        ),
    }
}
