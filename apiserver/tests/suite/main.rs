//! The API server as its clients see it, over connections of their own, and the rules of built-in kinds.

mod admission;
mod autoscalers;
mod builtin_rules;
mod builtin_subresources;
mod claim_status;
#[path = "../client/mod.rs"]
mod client;
mod component_statuses;
mod custom_versions;
mod definitions;
mod documents;
mod evictions;
mod field_selectors;
mod flags;
mod flow_control;
mod forms;
mod history;
mod kind_warnings;
mod managed_fields;
mod metrics;
mod new_events;
mod optional_plugins;
mod paths;
mod pod_plugins;
mod pod_security;
mod policies;
mod resource_quota;
mod reviews;
mod runtime_config;
mod server;
mod storage;
mod validation;
mod warnings;
mod websocket;
