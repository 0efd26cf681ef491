//! Facts about the built-in kinds of Kubernetes.
