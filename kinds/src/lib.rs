#![doc = include_str!("../README.md")]

mod decode;
pub mod openapi;
mod protobuf;
mod table;
mod value;

pub use decode::{
    DEPTH_MAX, DecodeError, OBJECTS_MAX, Storage, UNKNOWN_FIELDS_MAX, UnknownField, normalize,
};
pub use value::{Quantity, QuantityError, check_time, normalize_base64};

pub use protobuf::{
    MAGIC, ProtobufError, VALUES_MAX, WRAP_END, decode_message, encode_message, from_protobuf,
    from_protobuf_as, protobuf_kind, to_protobuf, watch_event, wrap, wrap_begin,
};
pub use table::{
    Deprecation, Field, Group, List, ListType, Package, Resource, Resources, Shape, Subresource,
    Type, TypeRef, Union, Version, groups, kind, resource, resource_of_kind, resources, sources,
    type_named, types, version,
};
