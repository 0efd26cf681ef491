//! etcd v3 gRPC services over the revstore engine.
