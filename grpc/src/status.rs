//! Errors as clients see them: one table of codes and texts, and what leads to each row.
//!
//! Clients match the texts, so they are part of the protocol. Nothing else in this crate makes a
//! [`Status`].

use std::fmt;

use revstore_engine::{CompactError, LeaseError, PutError, ReadError, TxnError, WatchError};
use tonic::{Code, Status};

/// Declares the errors with their codes and texts, so that a row cannot be left out.
macro_rules! etcd_errors {
    ($($(#[$doc:meta])* $name:ident => $code:ident, $text:literal;)*) => {
        /// An error that etcd's clients know by its code and its text.
        ///
        /// Some are only met in clusters; they are here for whoever plays such a cluster.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EtcdError {
            $($(#[$doc])* $name,)*
        }

        impl EtcdError {
            /// Every error, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code of the status.
            pub const fn code(self) -> Code {
                match self {
                    $(Self::$name => Code::$code,)*
                }
            }

            /// The text of the status.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

etcd_errors! {
    /// A request without a key (RG-6, PUT-1).
    EmptyKey => InvalidArgument, "etcdserver: key is not provided";
    /// There is nothing to keep (PUT-4), or an operation without a request (TXN-4).
    KeyNotFound => InvalidArgument, "etcdserver: key not found";
    /// A value where the present one was to be kept (PUT-3).
    ValueProvided => InvalidArgument, "etcdserver: value is provided";
    /// A lease where the present one was to be kept (PUT-3).
    LeaseProvided => InvalidArgument, "etcdserver: lease is provided";
    /// A transaction with more operations than the limit (TXN-1, TXN-2).
    TooManyOps => InvalidArgument, "etcdserver: too many operations in txn request";
    /// A transaction that writes a key twice (TXN-5, TXN-6).
    DuplicateKey => InvalidArgument, "etcdserver: duplicate key given in txn request";
    /// The client speaks another version of the protocol.
    InvalidClientApiVersion => InvalidArgument, "etcdserver: invalid client api version";
    /// An unknown order or target to sort by (RG-44, RG-45).
    InvalidSortOption => InvalidArgument, "etcdserver: invalid sort option";
    /// The revision is compacted (RG-12, CO-1, HK-3).
    Compacted => OutOfRange, "etcdserver: mvcc: required revision has been compacted";
    /// The revision is not written yet (RG-11, CO-1, HK-3).
    FutureRevision => OutOfRange, "etcdserver: mvcc: required revision is a future revision";
    /// The space quota is used up (MT-9, MT-11).
    NoSpace => ResourceExhausted, "etcdserver: mvcc: database space exceeded";
    /// There is no such lease (PUT-6, LE-5).
    LeaseNotFound => NotFound, "etcdserver: requested lease not found";
    /// The lease is there already (LE-3).
    LeaseExists => FailedPrecondition, "etcdserver: lease already exists";
    /// The time to live is above the largest one (LE-2).
    LeaseTtlTooLarge => OutOfRange, "etcdserver: too large lease TTL";
    /// The watch stream was cancelled.
    WatchCanceled => Cancelled, "etcdserver: watch canceled";
    /// The member is there already.
    MemberExists => FailedPrecondition, "etcdserver: member ID already exist";
    /// Another member has these peer URLs (CL-2).
    PeerUrlExists => FailedPrecondition, "etcdserver: Peer URLs already exists";
    /// The change would cost the cluster its quorum (CL-3).
    NotEnoughStartedMembers => FailedPrecondition,
        "etcdserver: re-configuration failed due to not enough started members";
    /// Peer URLs that are none (CL-2).
    BadMemberUrls => InvalidArgument, "etcdserver: given member URLs are invalid";
    /// There is no such member (CL-4).
    MemberNotFound => NotFound, "etcdserver: member not found";
    /// The member to promote votes already (CL-4).
    MemberNotLearner => FailedPrecondition, "etcdserver: can only promote a learner member";
    /// The learner to promote is behind (CL-4).
    LearnerNotReady => FailedPrecondition,
        "etcdserver: can only promote a learner member which is in sync with leader";
    /// The cluster has as many learners as it takes (CL-3).
    TooManyLearners => FailedPrecondition, "etcdserver: too many learner members in cluster";
    /// A peer of another cluster.
    ClusterIdMismatch => FailedPrecondition, "etcdserver: cluster ID mismatch";
    /// The proposal is above the request limit (LI-1).
    RequestTooLarge => InvalidArgument, "etcdserver: request is too large";
    /// Requests come faster than they are applied.
    TooManyRequests => ResourceExhausted, "etcdserver: too many requests";
    /// User `root` is missing (AU-1).
    RootUserNotExist => FailedPrecondition, "etcdserver: root user does not exist";
    /// User `root` lacks role `root` (AU-1).
    RootRoleNotGranted => FailedPrecondition, "etcdserver: root user does not have root role";
    /// The user is there already.
    UserExists => FailedPrecondition, "etcdserver: user name already exists";
    /// A request without a user (AU-5).
    UserEmpty => InvalidArgument, "etcdserver: user name is empty";
    /// There is no such user.
    UserNotFound => FailedPrecondition, "etcdserver: user name not found";
    /// The role is there already.
    RoleExists => FailedPrecondition, "etcdserver: role name already exists";
    /// There is no such role.
    RoleNotFound => FailedPrecondition, "etcdserver: role name not found";
    /// A request without a role.
    RoleEmpty => InvalidArgument, "etcdserver: role name is empty";
    /// Name and password do not fit (AU-3).
    AuthFailed => InvalidArgument,
        "etcdserver: authentication failed, invalid user ID or password";
    /// A grant without a permission.
    PermissionNotGiven => InvalidArgument, "etcdserver: permission not given";
    /// The user may not do this (AU-7, AU-8).
    PermissionDenied => PermissionDenied, "etcdserver: permission denied";
    /// The user does not hold the role.
    RoleNotGranted => FailedPrecondition, "etcdserver: role is not granted to the user";
    /// The role does not have the permission.
    PermissionNotGranted => FailedPrecondition,
        "etcdserver: permission is not granted to the role";
    /// Nobody is asked who they are (AU-2).
    AuthNotEnabled => FailedPrecondition, "etcdserver: authentication is not enabled";
    /// The token is unknown or too old (AU-5).
    InvalidAuthToken => Unauthenticated, "etcdserver: invalid auth token";
    /// What auth depends on cannot be removed (AU-10).
    InvalidAuthManagement => InvalidArgument, "etcdserver: invalid auth management";
    /// The token is older than the last change of auth.
    AuthOldRevision => InvalidArgument, "etcdserver: revision of auth store is old";
    /// The cluster has no leader.
    NoLeader => Unavailable, "etcdserver: no leader";
    /// A request that only the leader takes.
    NotLeader => FailedPrecondition, "etcdserver: not leader";
    /// The leader changed in the middle of the request.
    LeaderChanged => Unavailable, "etcdserver: leader changed";
    /// The cluster is too old for the request.
    NotCapable => FailedPrecondition, "etcdserver: not capable";
    /// The server is shutting down (WA-17, FL-15).
    Stopped => Unavailable, "etcdserver: server stopped";
    /// No quorum answered in time.
    Timeout => Unavailable, "etcdserver: request timed out";
    /// As above, after the leader was lost.
    TimeoutLeaderFailure => Unavailable,
        "etcdserver: request timed out, possibly due to previous leader failure";
    /// As above, after a peer was lost.
    TimeoutConnectionLost => Unavailable,
        "etcdserver: request timed out, possibly due to connection lost";
    /// As above, while the store was catching up.
    TimeoutApply => Unavailable,
        "etcdserver: request timed out, waiting for the applied index took too long";
    /// The cluster is not fit for a change of members.
    Unhealthy => Unavailable, "etcdserver: unhealthy cluster";
    /// Stored data was found damaged (MT-10).
    Corrupt => DataLoss, "etcdserver: corrupt cluster";
    /// A request that learners do not take.
    NotSupportedForLearner => FailedPrecondition, "etcdserver: rpc not supported for learner";
    /// The member to lead is not one that can (MT-12).
    BadLeaderTransferee => FailedPrecondition, "etcdserver: bad leader transferee";
    /// The version to downgrade to is none (MT-13).
    WrongDowngradeVersionFormat => InvalidArgument,
        "etcdserver: wrong downgrade target version format";
    /// The version to downgrade to is not one minor version lower (MT-13).
    InvalidDowngradeTargetVersion => InvalidArgument,
        "etcdserver: invalid downgrade target version";
    /// The cluster does not know its version.
    ClusterVersionUnavailable => FailedPrecondition,
        "etcdserver: cluster version not found during downgrade";
    /// One downgrade at a time.
    DowngradeInProcess => FailedPrecondition,
        "etcdserver: cluster has a downgrade job in progress";
    /// There is no downgrade to stop (MT-13).
    NoInflightDowngrade => FailedPrecondition, "etcdserver: no inflight downgrade job";
    /// The client gave up.
    RequestCanceled => Cancelled, "etcdserver: request canceled";
    /// The client's time is over.
    DeadlineExceeded => DeadlineExceeded, "etcdserver: context deadline exceeded";

    /// The last member cannot be removed. The text of another row with the code that etcd gives
    /// here (CL-5).
    LastMember => Unknown, "etcdserver: re-configuration failed due to not enough started members";
    /// Neither of the things one can do about downgrades (MT-13).
    UnknownDowngradeAction => Unknown, "etcdserver: unknown method";
    /// Chunks come in key order only (RG-65).
    StreamSortUnsupported => Unimplemented, "RangeStream does not support custom sort orders";
    /// Chunks come unfiltered only (RG-65).
    StreamFilterUnsupported => Unimplemented, "RangeStream does not support revision filters";
    /// The health of a service that is not there (HL-1).
    UnknownHealthService => NotFound, "unknown service";
    /// There is no older version to become (MT-13).
    DowngradeUnsupported => Unimplemented, "revstore: there is no older version to downgrade to";
    /// A password for a user who has none (AU-3). A text that etcd does not translate.
    NoPasswordUser => Unknown,
        "auth: authentication failed, password was given for no password user";
    /// bcrypt would not look at all of the password.
    PasswordTooLong => Unknown, "bcrypt: password length exceeds 72 bytes";
    /// The key of who waited for a lock is gone (EL-5).
    LockSessionExpired => Unknown, "mutex: session is expired";
    /// Leadership, or the place in line for it, is gone (EL-5, EL-7).
    ElectionNotLeader => Unknown, "election: not leader";
    /// Nobody leads (EL-8).
    NoElectionLeader => Unknown, "election: no leader";
    /// A request without the proof of leadership (EL-7).
    LeaderNotGiven => Unknown, "\"leader\" field must be provided";
    /// A task of the server died in the middle of the request.
    Internal => Internal, "revstore: the request was not completed";
}

impl EtcdError {
    /// The error as it goes over the wire.
    pub fn to_status(self) -> Status {
        Status::new(self.code(), self.text())
    }
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for EtcdError {}

impl From<EtcdError> for Status {
    fn from(error: EtcdError) -> Self {
        error.to_status()
    }
}

impl From<ReadError> for EtcdError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Compacted { .. } => Self::Compacted,
            ReadError::Future { .. } => Self::FutureRevision,
        }
    }
}

impl From<PutError> for EtcdError {
    fn from(error: PutError) -> Self {
        match error {
            PutError::EmptyKey => Self::EmptyKey,
            PutError::TooLarge => Self::RequestTooLarge,
            PutError::KeyNotFound => Self::KeyNotFound,
            PutError::LeaseNotFound { .. } => Self::LeaseNotFound,
        }
    }
}

impl From<TxnError> for EtcdError {
    fn from(error: TxnError) -> Self {
        match error {
            TxnError::Put(error) => error.into(),
            TxnError::Read(error) => error.into(),
        }
    }
}

impl From<CompactError> for EtcdError {
    fn from(error: CompactError) -> Self {
        match error {
            CompactError::Compacted { .. } => Self::Compacted,
            CompactError::Future { .. } => Self::FutureRevision,
        }
    }
}

impl From<LeaseError> for EtcdError {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::NotFound => Self::LeaseNotFound,
            LeaseError::AlreadyExists => Self::LeaseExists,
            LeaseError::TtlTooLarge => Self::LeaseTtlTooLarge,
        }
    }
}

/// Lock and Election are recipes that run in the server as they would in a client, and hand on as
/// UNKNOWN what the requests that they make are told (EL-3, EL-4). The end of the server is no such
/// thing: clients try again when they are told of it as it is.
pub(crate) fn of_recipe(error: EtcdError) -> Status {
    match error {
        EtcdError::Stopped => error.to_status(),
        _ => Status::unknown(error.text()),
    }
}

/// AU-6: a few methods hand on what auth says as it is, as UNKNOWN and by the name of the module.
pub(crate) fn untranslated(error: EtcdError) -> Status {
    let said = error.text().trim_start_matches("etcdserver: ");
    Status::unknown(format!("auth: {said}"))
}

/// WA-60: an error in the words in which a Go program prints it.
pub(crate) fn go_error_text(error: EtcdError) -> String {
    // The names of Go's constants, which are those of the variants here but for one.
    let code = match error.code() {
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", error.text())
}

/// ER-1: a refused watch is told by a text in its reply, and leaves the stream alone.
pub(crate) fn cancel_reason(error: WatchError) -> &'static str {
    match error {
        WatchError::DuplicateId => "mvcc: duplicate watch ID provided on the WatchStream",
        WatchError::EmptyRange => "mvcc: watcher range is empty",
        WatchError::Compacted => EtcdError::Compacted.text(),
    }
}

/// HL-3: the service is there, the method is not.
pub(crate) fn unknown_method(service: &str, method: &str) -> Status {
    Status::unimplemented(format!("unknown method {method} for service {service}"))
}

/// HL-3: the service is not there.
pub(crate) fn unknown_service(service: &str) -> Status {
    Status::unimplemented(format!("unknown service {service}"))
}

/// A path that names no method.
pub(crate) fn malformed_path(path: &str) -> Status {
    Status::unimplemented(format!("malformed method name: {path:?}"))
}

/// LI-2: a message above the limit of the transport.
pub(crate) fn message_too_large(bytes: usize, bytes_max: usize) -> Status {
    let text = format!("grpc: received message larger than max ({bytes} vs. {bytes_max})");
    Status::resource_exhausted(text)
}

/// HT-22: a path of the gateway that leads nowhere.
pub(crate) fn no_route() -> Status {
    Status::not_found("Not Found")
}

/// HT-22: another verb than POST at the gateway.
pub(crate) fn only_post() -> Status {
    Status::unimplemented("Method Not Allowed")
}

/// A JSON object without an end.
pub(crate) fn json_ends_early() -> Status {
    Status::invalid_argument("unexpected EOF")
}

/// Something else where a JSON object should begin.
pub(crate) fn no_json_object(first: u8) -> Status {
    let first = char::from(first);
    Status::invalid_argument(format!("proto: syntax error: unexpected token {first}"))
}

/// A JSON object that is none, or not that of a message.
pub(crate) fn malformed_json(error: &dyn fmt::Display) -> Status {
    Status::invalid_argument(format!("proto: {error}"))
}

/// The gateway cannot read from a client, or write what a service answered.
pub(crate) fn gateway_broken(error: &dyn fmt::Display) -> Status {
    Status::internal(format!("gateway: {error}"))
}

#[cfg(test)]
mod tests {
    use revstore_engine::{LeaseId, PutError, ReadError, Revision, TxnError, WatchError};
    use tonic::{Code, Status};

    use super::EtcdError;

    /// Section J of the behaviour specification, row by row: the code and the text.
    const SECTION_J: &str = "\
        INVALID_ARGUMENT etcdserver: key is not provided
        INVALID_ARGUMENT etcdserver: key not found
        INVALID_ARGUMENT etcdserver: value is provided
        INVALID_ARGUMENT etcdserver: lease is provided
        INVALID_ARGUMENT etcdserver: too many operations in txn request
        INVALID_ARGUMENT etcdserver: duplicate key given in txn request
        INVALID_ARGUMENT etcdserver: invalid client api version
        INVALID_ARGUMENT etcdserver: invalid sort option
        OUT_OF_RANGE etcdserver: mvcc: required revision has been compacted
        OUT_OF_RANGE etcdserver: mvcc: required revision is a future revision
        RESOURCE_EXHAUSTED etcdserver: mvcc: database space exceeded
        NOT_FOUND etcdserver: requested lease not found
        FAILED_PRECONDITION etcdserver: lease already exists
        OUT_OF_RANGE etcdserver: too large lease TTL
        CANCELLED etcdserver: watch canceled
        FAILED_PRECONDITION etcdserver: member ID already exist
        FAILED_PRECONDITION etcdserver: Peer URLs already exists
        FAILED_PRECONDITION etcdserver: re-configuration failed due to not enough started members
        INVALID_ARGUMENT etcdserver: given member URLs are invalid
        NOT_FOUND etcdserver: member not found
        FAILED_PRECONDITION etcdserver: can only promote a learner member
        FAILED_PRECONDITION etcdserver: can only promote a learner member which is in sync with leader
        FAILED_PRECONDITION etcdserver: too many learner members in cluster
        FAILED_PRECONDITION etcdserver: cluster ID mismatch
        INVALID_ARGUMENT etcdserver: request is too large
        RESOURCE_EXHAUSTED etcdserver: too many requests
        FAILED_PRECONDITION etcdserver: root user does not exist
        FAILED_PRECONDITION etcdserver: root user does not have root role
        FAILED_PRECONDITION etcdserver: user name already exists
        INVALID_ARGUMENT etcdserver: user name is empty
        FAILED_PRECONDITION etcdserver: user name not found
        FAILED_PRECONDITION etcdserver: role name already exists
        FAILED_PRECONDITION etcdserver: role name not found
        INVALID_ARGUMENT etcdserver: role name is empty
        INVALID_ARGUMENT etcdserver: authentication failed, invalid user ID or password
        INVALID_ARGUMENT etcdserver: permission not given
        PERMISSION_DENIED etcdserver: permission denied
        FAILED_PRECONDITION etcdserver: role is not granted to the user
        FAILED_PRECONDITION etcdserver: permission is not granted to the role
        FAILED_PRECONDITION etcdserver: authentication is not enabled
        UNAUTHENTICATED etcdserver: invalid auth token
        INVALID_ARGUMENT etcdserver: invalid auth management
        INVALID_ARGUMENT etcdserver: revision of auth store is old
        UNAVAILABLE etcdserver: no leader
        FAILED_PRECONDITION etcdserver: not leader
        UNAVAILABLE etcdserver: leader changed
        FAILED_PRECONDITION etcdserver: not capable
        UNAVAILABLE etcdserver: server stopped
        UNAVAILABLE etcdserver: request timed out
        UNAVAILABLE etcdserver: request timed out, possibly due to previous leader failure
        UNAVAILABLE etcdserver: request timed out, possibly due to connection lost
        UNAVAILABLE etcdserver: request timed out, waiting for the applied index took too long
        UNAVAILABLE etcdserver: unhealthy cluster
        DATA_LOSS etcdserver: corrupt cluster
        FAILED_PRECONDITION etcdserver: rpc not supported for learner
        FAILED_PRECONDITION etcdserver: bad leader transferee
        INVALID_ARGUMENT etcdserver: wrong downgrade target version format
        INVALID_ARGUMENT etcdserver: invalid downgrade target version
        FAILED_PRECONDITION etcdserver: cluster version not found during downgrade
        FAILED_PRECONDITION etcdserver: cluster has a downgrade job in progress
        FAILED_PRECONDITION etcdserver: no inflight downgrade job
        CANCELLED etcdserver: request canceled
        DEADLINE_EXCEEDED etcdserver: context deadline exceeded
";

    fn code(name: &str) -> Code {
        match name {
            "CANCELLED" => Code::Cancelled,
            "DATA_LOSS" => Code::DataLoss,
            "DEADLINE_EXCEEDED" => Code::DeadlineExceeded,
            "FAILED_PRECONDITION" => Code::FailedPrecondition,
            "INVALID_ARGUMENT" => Code::InvalidArgument,
            "NOT_FOUND" => Code::NotFound,
            "OUT_OF_RANGE" => Code::OutOfRange,
            "PERMISSION_DENIED" => Code::PermissionDenied,
            "RESOURCE_EXHAUSTED" => Code::ResourceExhausted,
            "UNAUTHENTICATED" => Code::Unauthenticated,
            "UNAVAILABLE" => Code::Unavailable,
            other => panic!("section J has no {other}"),
        }
    }

    /// With the rows that only a cluster or a fault on purpose can produce.
    #[test]
    fn er_2_the_table_begins_with_section_j() {
        let rows: Vec<_> = SECTION_J.lines().map(str::trim).collect();
        for (row, error) in rows.iter().zip(EtcdError::ALL) {
            let (name, text) = row.split_once(' ').unwrap();
            let status = error.to_status();
            assert_eq!(
                (status.code(), status.message()),
                (code(name), text),
                "{error:?}"
            );
        }
        let others: Vec<_> = EtcdError::ALL[rows.len()..].to_vec();
        assert_eq!(
            others,
            [
                EtcdError::LastMember,
                EtcdError::UnknownDowngradeAction,
                EtcdError::StreamSortUnsupported,
                EtcdError::StreamFilterUnsupported,
                EtcdError::UnknownHealthService,
                EtcdError::DowngradeUnsupported,
                EtcdError::NoPasswordUser,
                EtcdError::PasswordTooLong,
                EtcdError::LockSessionExpired,
                EtcdError::ElectionNotLeader,
                EtcdError::NoElectionLeader,
                EtcdError::LeaderNotGiven,
                EtcdError::Internal,
            ]
        );
    }

    #[test]
    fn what_the_engine_refuses_has_its_row() {
        let (one, two) = (Revision(1), Revision(2));
        let compacted = ReadError::Compacted {
            requested: one,
            compacted: two,
        };
        let future = ReadError::Future {
            requested: two,
            current: one,
        };
        let lease = PutError::LeaseNotFound {
            lease: LeaseId::new(7).unwrap(),
        };
        let check = |error: TxnError, expected| assert_eq!(EtcdError::from(error), expected);
        check(compacted.into(), EtcdError::Compacted);
        check(future.into(), EtcdError::FutureRevision);
        check(lease.into(), EtcdError::LeaseNotFound);
        check(PutError::KeyNotFound.into(), EtcdError::KeyNotFound);
        check(PutError::EmptyKey.into(), EtcdError::EmptyKey);
        check(PutError::TooLarge.into(), EtcdError::RequestTooLarge);
    }

    #[test]
    fn er_1_watches_are_refused_by_texts() {
        let check = |error, text| assert_eq!(super::cancel_reason(error), text);
        check(
            WatchError::DuplicateId,
            "mvcc: duplicate watch ID provided on the WatchStream",
        );
        check(WatchError::EmptyRange, "mvcc: watcher range is empty");
        check(
            WatchError::Compacted,
            "etcdserver: mvcc: required revision has been compacted",
        );
    }

    #[test]
    fn what_never_reaches_a_handler_has_grpcs_words() {
        let check = |status: Status, code, text| {
            assert_eq!((status.code(), status.message()), (code, text));
        };
        check(
            super::message_too_large(2_097_153, 2_097_152),
            Code::ResourceExhausted,
            "grpc: received message larger than max (2097153 vs. 2097152)",
        );
        check(
            super::unknown_method("a.B", "C"),
            Code::Unimplemented,
            "unknown method C for service a.B",
        );
        check(
            super::unknown_service("a.B"),
            Code::Unimplemented,
            "unknown service a.B",
        );
    }
}
