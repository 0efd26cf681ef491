//! Errors: one table of codes and texts, and the conversions to it.
//!
//! Clients compare the texts, so they are part of the protocol. No other file of this crate creates a
//! [`Status`]. etcd has this table in `rpctypes` and the conversions in `togRPCError`.

use std::fmt;

use http::HeaderMap;
use revstore_engine::{
    CompactError, LeaseError, PutError, ReadError, TxnError, WatchError, WriteError,
};
use tonic::codegen::StdError;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::methods::{RpcKind, RpcMethod, ServiceId};
use crate::request::nesting::TxnDecodeError;

/// Declares the errors with their codes and texts. The clause ids of a row are in `//` comments.
macro_rules! etcd_errors {
    ($($(#[$doc:meta])* $name:ident => $code:ident, $text:literal;)*) => {
        /// An error that etcd's clients recognize by its code and its text.
        ///
        /// Some errors occur only in clusters. They are for programs that simulate a cluster.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EtcdError {
            $($(#[$doc])* $name,)*
        }

        impl EtcdError {
            /// All errors, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the code of the status.
            pub const fn code(self) -> Code {
                match self {
                    $(Self::$name => Code::$code,)*
                }
            }

            /// Returns the text of the status.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

etcd_errors! {
    /// The request has no key.
    // RG-6, PUT-1
    EmptyKey => InvalidArgument, "etcdserver: key is not provided";
    /// A put keeps the value or the lease of a key that does not exist, or an operation of a transaction
    /// contains no request.
    // PUT-4, TXN-4
    KeyNotFound => InvalidArgument, "etcdserver: key not found";
    /// A put has a value and the flag `ignore_value`.
    // PUT-3
    ValueProvided => InvalidArgument, "etcdserver: value is provided";
    /// A put has a lease and the flag `ignore_lease`.
    // PUT-3
    LeaseProvided => InvalidArgument, "etcdserver: lease is provided";
    /// A transaction has more operations than the limit.
    // TXN-1, TXN-2
    TooManyOps => InvalidArgument, "etcdserver: too many operations in txn request";
    /// A transaction writes a key twice.
    // TXN-5, TXN-6
    DuplicateKey => InvalidArgument, "etcdserver: duplicate key given in txn request";
    /// The client uses another version of the protocol.
    InvalidClientApiVersion => InvalidArgument, "etcdserver: invalid client api version";
    /// The sort order or the sort target is unknown.
    // RG-44, RG-45
    InvalidSortOption => InvalidArgument, "etcdserver: invalid sort option";
    /// The revision is compacted.
    // RG-12, CO-1, HK-3
    Compacted => OutOfRange, "etcdserver: mvcc: required revision has been compacted";
    /// The revision does not exist yet.
    // RG-11, CO-1, HK-3
    FutureRevision => OutOfRange, "etcdserver: mvcc: required revision is a future revision";
    /// The space quota is exceeded.
    // MT-9, MT-11
    NoSpace => ResourceExhausted, "etcdserver: mvcc: database space exceeded";
    /// The lease does not exist.
    // PUT-6, LE-5
    LeaseNotFound => NotFound, "etcdserver: requested lease not found";
    /// The lease exists already.
    // LE-3
    LeaseExists => FailedPrecondition, "etcdserver: lease already exists";
    /// The time to live is above the maximum.
    // LE-2
    LeaseTtlTooLarge => OutOfRange, "etcdserver: too large lease TTL";
    /// The watch stream is cancelled.
    WatchCanceled => Cancelled, "etcdserver: watch canceled";
    /// The member exists already.
    MemberExists => FailedPrecondition, "etcdserver: member ID already exist";
    /// Another member has one of the peer URLs.
    // CL-2
    PeerUrlExists => FailedPrecondition, "etcdserver: Peer URLs already exists";
    /// The change would leave the cluster without a quorum.
    // CL-3
    NotEnoughStartedMembers => FailedPrecondition,
        "etcdserver: re-configuration failed due to not enough started members";
    /// The peer URLs are malformed.
    // CL-2
    BadMemberUrls => InvalidArgument, "etcdserver: given member URLs are invalid";
    /// The member does not exist.
    // CL-4
    MemberNotFound => NotFound, "etcdserver: member not found";
    /// The member to promote is not a learner.
    // CL-4
    MemberNotLearner => FailedPrecondition, "etcdserver: can only promote a learner member";
    /// The learner to promote has not caught up with the leader.
    // CL-4
    LearnerNotReady => FailedPrecondition,
        "etcdserver: can only promote a learner member which is in sync with leader";
    /// The cluster has the maximum number of learners.
    // CL-3
    TooManyLearners => FailedPrecondition, "etcdserver: too many learner members in cluster";
    /// The peer belongs to another cluster.
    ClusterIdMismatch => FailedPrecondition, "etcdserver: cluster ID mismatch";
    /// The proposal is larger than the limit.
    // LI-1
    RequestTooLarge => InvalidArgument, "etcdserver: request is too large";
    /// Requests arrive faster than they are applied.
    TooManyRequests => ResourceExhausted, "etcdserver: too many requests";
    /// User `root` does not exist.
    // AU-1
    RootUserNotExist => FailedPrecondition, "etcdserver: root user does not exist";
    /// User `root` does not have role `root`.
    // AU-1
    RootRoleNotGranted => FailedPrecondition, "etcdserver: root user does not have root role";
    /// The user exists already.
    UserExists => FailedPrecondition, "etcdserver: user name already exists";
    /// The request has no user.
    // AU-5
    UserEmpty => InvalidArgument, "etcdserver: user name is empty";
    /// The user does not exist.
    UserNotFound => FailedPrecondition, "etcdserver: user name not found";
    /// The role exists already.
    RoleExists => FailedPrecondition, "etcdserver: role name already exists";
    /// The role does not exist.
    RoleNotFound => FailedPrecondition, "etcdserver: role name not found";
    /// The request has no role.
    RoleEmpty => InvalidArgument, "etcdserver: role name is empty";
    /// The user name or the password is wrong.
    // AU-3
    AuthFailed => InvalidArgument,
        "etcdserver: authentication failed, invalid user ID or password";
    /// A grant has no permission.
    PermissionNotGiven => InvalidArgument, "etcdserver: permission not given";
    /// The user lacks a permission.
    // AU-7, AU-8
    PermissionDenied => PermissionDenied, "etcdserver: permission denied";
    /// The user does not have the role.
    RoleNotGranted => FailedPrecondition, "etcdserver: role is not granted to the user";
    /// The role does not have the permission.
    PermissionNotGranted => FailedPrecondition,
        "etcdserver: permission is not granted to the role";
    /// Authentication is not enabled.
    // AU-2
    AuthNotEnabled => FailedPrecondition, "etcdserver: authentication is not enabled";
    /// The token is unknown or has expired.
    // AU-5
    InvalidAuthToken => Unauthenticated, "etcdserver: invalid auth token";
    /// User `root` or role `root` cannot be removed while auth is enabled, or a permission is
    /// malformed.
    // AU-10
    InvalidAuthManagement => InvalidArgument, "etcdserver: invalid auth management";
    /// The token is older than the last change of auth.
    AuthOldRevision => InvalidArgument, "etcdserver: revision of auth store is old";
    /// The cluster has no leader.
    NoLeader => Unavailable, "etcdserver: no leader";
    /// Only the leader accepts the request.
    NotLeader => FailedPrecondition, "etcdserver: not leader";
    /// The leader changed during the request.
    LeaderChanged => Unavailable, "etcdserver: leader changed";
    /// The cluster version does not support the request.
    NotCapable => FailedPrecondition, "etcdserver: not capable";
    /// The server is stopping.
    // WA-17, FL-15
    Stopped => Unavailable, "etcdserver: server stopped";
    /// No quorum responded in time.
    Timeout => Unavailable, "etcdserver: request timed out";
    /// No quorum responded in time, after the leader was lost.
    TimeoutLeaderFailure => Unavailable,
        "etcdserver: request timed out, possibly due to previous leader failure";
    /// No quorum responded in time, after a peer was lost.
    TimeoutConnectionLost => Unavailable,
        "etcdserver: request timed out, possibly due to connection lost";
    /// The store did not catch up in time.
    TimeoutApply => Unavailable,
        "etcdserver: request timed out, waiting for the applied index took too long";
    /// The cluster is not healthy enough for a change of members.
    Unhealthy => Unavailable, "etcdserver: unhealthy cluster";
    /// Stored data is damaged.
    // MT-10
    Corrupt => DataLoss, "etcdserver: corrupt cluster";
    /// Learners do not accept the request.
    NotSupportedForLearner => FailedPrecondition, "etcdserver: rpc not supported for learner";
    /// The member cannot become the leader.
    // MT-12
    BadLeaderTransferee => FailedPrecondition, "etcdserver: bad leader transferee";
    /// The target version of a downgrade is malformed.
    // MT-13
    WrongDowngradeVersionFormat => InvalidArgument,
        "etcdserver: wrong downgrade target version format";
    /// The target version of a downgrade is not the previous minor version.
    // MT-13
    InvalidDowngradeTargetVersion => InvalidArgument,
        "etcdserver: invalid downgrade target version";
    /// The cluster version is unknown.
    ClusterVersionUnavailable => FailedPrecondition,
        "etcdserver: cluster version not found during downgrade";
    /// A downgrade is in progress.
    DowngradeInProcess => FailedPrecondition,
        "etcdserver: cluster has a downgrade job in progress";
    /// No downgrade is in progress.
    // MT-13
    NoInflightDowngrade => FailedPrecondition, "etcdserver: no inflight downgrade job";
    /// The client cancelled the request.
    RequestCanceled => Cancelled, "etcdserver: request canceled";
    /// The client's deadline has passed.
    DeadlineExceeded => DeadlineExceeded, "etcdserver: context deadline exceeded";

    /// The last member cannot be removed, and no voting member be added beside one that has not started.
    // CL-5: the text of another row, with the code that etcd returns in this case.
    LastMember => Unknown, "etcdserver: re-configuration failed due to not enough started members";
    /// The action of a downgrade request is unknown.
    // MT-13
    UnknownDowngradeAction => Unknown, "etcdserver: unknown method";
    /// A range stream is always in key order.
    // RG-65
    StreamSortUnsupported => Unimplemented, "RangeStream does not support custom sort orders";
    /// A range stream has no filters.
    // RG-65
    StreamFilterUnsupported => Unimplemented, "RangeStream does not support revision filters";
    /// The health check is for an unknown service.
    // HL-1
    UnknownHealthService => NotFound, "unknown service";
    /// A downgrade is not possible.
    // MT-13
    DowngradeUnsupported => Unimplemented, "revstore: there is no older version to downgrade to";
    /// The user has no password, but the request has one.
    // AU-3: etcd does not translate this error.
    NoPasswordUser => Unknown,
        "auth: authentication failed, password was given for no password user";
    /// The server has no private key for JWT tokens.
    // AU-14: etcd does not translate this error.
    VerifyOnly => Unknown, "auth: token signing attempted with verify-only key";
    /// The password is longer than bcrypt accepts.
    PasswordTooLong => Unknown, "bcrypt: password length exceeds 72 bytes";
    /// The key of a waiter for a lock no longer exists.
    // EL-5
    LockSessionExpired => Unknown, "mutex: session is expired";
    /// The key of a leader or of a waiter for leadership no longer exists.
    // EL-5, EL-7
    ElectionNotLeader => Unknown, "election: not leader";
    /// The election has no leader.
    // EL-8
    NoElectionLeader => Unknown, "election: no leader";
    /// The request has no leader.
    // EL-7
    LeaderNotGiven => Unknown, "\"leader\" field must be provided";
    /// The answer needs more memory than all answers together may take.
    AnswerTooLarge => ResourceExhausted,
        "revstore: the answer needs more memory than --answer-memory-bytes allows";
    /// The message of the answer is longer than gRPC allows.
    // LI-3
    MessageTooLarge => ResourceExhausted, "revstore: the answer is longer than 4 GiB";
    /// The client did not read the answer, and another request needed its memory.
    AnswerNotRead => ResourceExhausted,
        "revstore: the answer was not read for 10s while other requests waited for its memory";
    /// The disk of the journal is full, so that a write cannot be stored. One that was executed is stored
    /// when there is space.
    JournalFull => ResourceExhausted,
        "revstore: cannot persist the write: no space left on the device of --data-dir";
    /// The journal cannot be written. A write that was executed is stored when the disk works again.
    JournalFailed => Unavailable,
        "revstore: cannot persist the write: the device of --data-dir fails";
    /// A task of the server panicked during the request.
    Internal => Internal, "revstore: the request was not completed";
}

impl EtcdError {
    /// Returns the error as a gRPC status.
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

impl From<WriteError> for EtcdError {
    /// etcd has no such errors: it ends the process if a write panics.
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Damaged => Self::Corrupt,
            WriteError::Ended => Self::Stopped,
            WriteError::RevisionsExhausted => Self::NoSpace,
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
            PutError::Refused(error) => error.into(),
        }
    }
}

impl From<TxnError> for EtcdError {
    fn from(error: TxnError) -> Self {
        match error {
            TxnError::Put { error, .. } => error.into(),
            TxnError::Read { error, .. } => error.into(),
            TxnError::Refused(error) => error.into(),
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
            LeaseError::Refused(error) => error.into(),
        }
    }
}

/// Converts an error of Lock and Election. In etcd, the server executes these methods with a client, so their
/// errors have the code UNKNOWN (EL-3, EL-4). [`EtcdError::Stopped`] has its own code, because clients retry
/// after it.
pub(crate) fn of_recipe(error: EtcdError) -> Status {
    match error {
        EtcdError::Stopped => error.to_status(),
        _ => Status::unknown(error.text()),
    }
}

/// Converts an error of authorization for the methods in which etcd does not translate it. It has the code
/// UNKNOWN and the prefix of etcd's package `auth` (AU-6).
pub(crate) fn untranslated(error: EtcdError) -> Status {
    let text = error.text().trim_start_matches("etcdserver: ");
    Status::unknown(format!("auth: {text}"))
}

/// Returns an error in the text form of Go's gRPC library (WA-60).
pub(crate) fn go_error_text(error: EtcdError) -> String {
    // The names of Go's constants are those of tonic's variants, except for one.
    let code = match error.code() {
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", error.text())
}

/// Returns the text for a watcher that is not created, in a response that does not end the stream
/// (ER-1).
pub(crate) fn cancel_reason(error: WatchError) -> &'static str {
    match error {
        WatchError::DuplicateId => "mvcc: duplicate watch ID provided on the WatchStream",
        WatchError::EmptyRange => "mvcc: watcher range is empty",
        WatchError::Compacted => EtcdError::Compacted.text(),
    }
}

/// LI-9: the deadline of a call has passed.
pub(crate) fn deadline_exceeded(method: &RpcMethod) -> Status {
    if method.service_id == ServiceId::Health && method.kind() == RpcKind::ServerStream {
        // Go's health service returns the same status for every end of the call.
        return Status::cancelled("Stream has ended.");
    }
    Status::deadline_exceeded("context deadline exceeded")
}

/// LI-9: the header `grpc-timeout` is malformed.
pub(crate) fn malformed_timeout(text: &str) -> Status {
    Status::internal(format!("malformed grpc-timeout: {text}"))
}

/// LI-9: the header `Grpc-Timeout` of a request to the gateway is malformed.
pub(crate) fn invalid_gateway_timeout(value: &[u8]) -> Status {
    let value = String::from_utf8_lossy(value);
    Status::invalid_argument(format!("invalid grpc-timeout: {value}"))
}

/// HL-3: the service exists, but the method does not.
pub(crate) fn unknown_method(service: &str, method: &str) -> Status {
    Status::unimplemented(format!("unknown method {method} for service {service}"))
}

/// HL-3: the service does not exist.
pub(crate) fn unknown_service(service: &str) -> Status {
    Status::unimplemented(format!("unknown service {service}"))
}

/// The path is not of the form `/service/method`.
pub(crate) fn malformed_path(path: &str) -> Status {
    Status::unimplemented(format!("malformed method name: {path:?}"))
}

impl From<TxnDecodeError> for Status {
    fn from(error: TxnDecodeError) -> Self {
        match error {
            TxnDecodeError::Malformed(error) => malformed_message(&error),
            // TXN-2
            TxnDecodeError::TooDeep => EtcdError::TooManyOps.to_status(),
        }
    }
}

/// HL-3: a request is not a message of its type.
pub(crate) fn malformed_message(error: &dyn fmt::Display) -> Status {
    Status::internal(error.to_string())
}

/// The body of a request cannot be read to its end: the client has reset the stream or disconnected.
pub(crate) fn client_disconnected(error: StdError) -> Status {
    match error.downcast::<Status>() {
        // An error that the client sent.
        Ok(status) => *status,
        Err(error) => {
            // tonic treats the code CANCELLED as the end of the messages, so the status is marked instead.
            let mut metadata = MetadataMap::new();
            metadata.insert(DISCONNECTED, MetadataValue::from_static("1"));
            let text = format!("the client ended the call: {error}");
            Status::with_metadata(Code::Unknown, text, metadata)
        }
    }
}

/// The name of the mark of [`client_disconnected`] in a status that no client receives.
const DISCONNECTED: &str = "revstore-disconnected";

/// Returns whether the status in headers or trailers means that the client has ended the call, by a reset or by
/// closing its connection, before its request was complete. The client does not receive such a status.
pub fn has_client_disconnected(headers: &HeaderMap) -> bool {
    headers.contains_key(DISCONNECTED)
}

/// LI-2: a message is larger than the limit.
pub(crate) fn message_too_large(bytes: usize, bytes_max: usize) -> Status {
    let text = format!("grpc: received message larger than max ({bytes} vs. {bytes_max})");
    Status::resource_exhausted(text)
}

/// LI-13: a message is larger than the limit when it is decompressed.
pub(crate) fn decompressed_too_large(bytes: usize, bytes_max: usize) -> Status {
    let text = format!(
        "grpc: received message after decompression larger than max ({bytes} vs. {bytes_max})"
    );
    Status::resource_exhausted(text)
}

/// LI-13: a compressed message cannot be decompressed.
pub(crate) fn malformed_gzip(reason: &str) -> Status {
    Status::internal(format!(
        "grpc: failed to decompress the received message: {reason}"
    ))
}

/// LI-13: the server does not support the encoding of a call.
pub(crate) fn unknown_encoding(encoding: &str) -> Status {
    Status::unimplemented(format!(
        "grpc: Decompressor is not installed for grpc-encoding {encoding:?}"
    ))
}

/// LI-13: a message has the flag of compressed ones although the call has no encoding, or an unknown flag.
pub(crate) fn invalid_flag(flag: u8) -> Status {
    if flag == 1 {
        return Status::internal("grpc: compressed flag set with identity or empty encoding");
    }
    Status::internal(format!("grpc: received unexpected payload format {flag}"))
}

/// LI-10: the metadata of a call is larger than the limit.
pub(crate) fn metadata_too_large(bytes: usize, bytes_max: usize) -> Status {
    let text = format!("grpc: received metadata larger than max ({bytes} vs. {bytes_max})");
    Status::resource_exhausted(text)
}

/// HT-22: the gateway has no such path.
pub(crate) fn no_route() -> Status {
    Status::not_found("Not Found")
}

/// HT-22: the method of a request to the gateway is not POST.
pub(crate) fn only_post() -> Status {
    Status::unimplemented("Method Not Allowed")
}

/// A request body ends inside a JSON object.
pub(crate) fn json_ends_early() -> Status {
    Status::invalid_argument("unexpected EOF")
}

/// A request body has another byte where a JSON object should begin.
pub(crate) fn no_json_object(first: u8) -> Status {
    let first = char::from(first);
    Status::invalid_argument(format!("proto: syntax error: unexpected token {first}"))
}

/// A JSON object is malformed, or does not match the message type.
pub(crate) fn malformed_json(error: &dyn fmt::Display) -> Status {
    Status::invalid_argument(format!("proto: {error}"))
}

/// The gateway cannot read a request body, or cannot convert a response.
pub(crate) fn gateway_broken(error: &dyn fmt::Display) -> Status {
    Status::internal(format!("gateway: {error}"))
}

#[cfg(test)]
mod tests {
    use revstore_engine::{LeaseId, OpPath, PutError, ReadError, Revision, TxnError, WatchError};
    use tonic::{Code, Status};

    use super::EtcdError;

    /// Section J of `docs/etcd-behaviour.md`, row by row: the code and the text.
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
            other => panic!("unknown code {other} in section J"),
        }
    }

    /// Includes the rows that only a cluster or a damaged store can produce.
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
                EtcdError::VerifyOnly,
                EtcdError::PasswordTooLong,
                EtcdError::LockSessionExpired,
                EtcdError::ElectionNotLeader,
                EtcdError::NoElectionLeader,
                EtcdError::LeaderNotGiven,
                EtcdError::AnswerTooLarge,
                EtcdError::MessageTooLarge,
                EtcdError::AnswerNotRead,
                EtcdError::JournalFull,
                EtcdError::JournalFailed,
                EtcdError::Internal,
            ]
        );
    }

    #[test]
    fn engine_errors_convert_to_rows_of_the_table() {
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
        let put = |error| TxnError::Put {
            op: OpPath::default(),
            error,
        };
        let read = |error| TxnError::Read {
            op: OpPath::default(),
            error,
        };
        let check = |error: TxnError, expected| assert_eq!(EtcdError::from(error), expected);
        check(read(compacted), EtcdError::Compacted);
        check(read(future), EtcdError::FutureRevision);
        check(put(lease), EtcdError::LeaseNotFound);
        check(put(PutError::KeyNotFound), EtcdError::KeyNotFound);
        check(put(PutError::EmptyKey), EtcdError::EmptyKey);
        check(put(PutError::TooLarge), EtcdError::RequestTooLarge);
    }

    #[test]
    fn er_1_cancel_reasons_have_the_texts_of_etcd() {
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
    fn errors_of_the_transport_have_the_texts_of_grpc_go() {
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
