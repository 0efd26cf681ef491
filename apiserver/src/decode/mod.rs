//! The bodies of requests: JSON and YAML, with bounds and with the errors of strict decoding.
