//! etcd's v3 wire messages and services, generated from our own .proto files.
