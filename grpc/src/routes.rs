//! Which service a path belongs to.

use tonic::Status;

use crate::status;

/// The services that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Kv,
    Watch,
    Lease,
    Maintenance,
    Cluster,
    Auth,
    Lock,
    Election,
    Health,
}

impl Service {
    /// The service of a path `/service/method`, if the method is there (HL-3).
    pub(crate) fn of_path(path: &str) -> Result<Self, Status> {
        let called = path
            .strip_prefix('/')
            .and_then(|path| path.rsplit_once('/'));
        let Some((name, method)) = called else {
            return Err(status::malformed_path(path));
        };
        let (service, methods) = Self::named(name).ok_or_else(|| status::unknown_service(name))?;
        if !methods.contains(&method) {
            return Err(status::unknown_method(name, method));
        }
        Ok(service)
    }

    /// Beside each service its methods, the frequent ones first.
    fn named(name: &str) -> Option<(Self, &'static [&'static str])> {
        Some(match name {
            "etcdserverpb.KV" => (
                Self::Kv,
                &[
                    "Range",
                    "Put",
                    "Txn",
                    "DeleteRange",
                    "Compact",
                    "RangeStream",
                ],
            ),
            "etcdserverpb.Watch" => (Self::Watch, &["Watch"]),
            "etcdserverpb.Lease" => (
                Self::Lease,
                &[
                    "LeaseKeepAlive",
                    "LeaseGrant",
                    "LeaseRevoke",
                    "LeaseTimeToLive",
                    "LeaseLeases",
                ],
            ),
            "etcdserverpb.Maintenance" => (
                Self::Maintenance,
                &[
                    "Status",
                    "Alarm",
                    "Defragment",
                    "Hash",
                    "HashKV",
                    "Snapshot",
                    "MoveLeader",
                    "Downgrade",
                ],
            ),
            "etcdserverpb.Cluster" => (
                Self::Cluster,
                &[
                    "MemberList",
                    "MemberAdd",
                    "MemberRemove",
                    "MemberUpdate",
                    "MemberPromote",
                ],
            ),
            "etcdserverpb.Auth" => (
                Self::Auth,
                &[
                    "Authenticate",
                    "AuthEnable",
                    "AuthDisable",
                    "AuthStatus",
                    "UserAdd",
                    "UserGet",
                    "UserList",
                    "UserDelete",
                    "UserChangePassword",
                    "UserGrantRole",
                    "UserRevokeRole",
                    "RoleAdd",
                    "RoleGet",
                    "RoleList",
                    "RoleDelete",
                    "RoleGrantPermission",
                    "RoleRevokePermission",
                ],
            ),
            "v3lockpb.Lock" => (Self::Lock, &["Lock", "Unlock"]),
            "v3electionpb.Election" => (
                Self::Election,
                &["Campaign", "Proclaim", "Leader", "Observe", "Resign"],
            ),
            "grpc.health.v1.Health" => (Self::Health, &["Check", "Watch"]),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::{FileDescriptorSet, MethodDescriptorProto};
    use tonic::Code;

    use super::Service;

    fn check_refused(path: &str, text: &str) {
        let refused = Service::of_path(path).unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (Code::Unimplemented, text)
        );
    }

    #[test]
    fn every_described_method_is_routed() {
        let set = FileDescriptorSet::decode(revstore_proto::FILE_DESCRIPTOR_SET).unwrap();
        for file in &set.file {
            for service in &file.service {
                let name = format!("{}.{}", file.package(), service.name());
                let (_, routed) = Service::named(&name).expect(&name);
                let mut routed = routed.to_vec();
                let methods = service.method.iter();
                let mut described: Vec<_> = methods.map(MethodDescriptorProto::name).collect();
                routed.sort_unstable();
                described.sort_unstable();
                assert_eq!(routed, described, "{name}");
            }
        }
    }

    #[test]
    fn hl_3_unknown_paths_are_told_apart() {
        check_refused(
            "/etcdserverpb.KV/Nope",
            "unknown method Nope for service etcdserverpb.KV",
        );
        check_refused(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            "unknown service grpc.reflection.v1alpha.ServerReflection",
        );
        check_refused("/nope", "malformed method name: \"/nope\"");
    }
}
