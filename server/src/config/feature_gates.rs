//! The value of `--feature-gates`.

use std::collections::BTreeSet;

use revstore_host::config::{ConfigError, FlagValue, ValueKind};

/// The gates of etcd 3.6 and 3.7 with the values that ask for what this server does anyway.
const GATES: &[(&str, &[bool])] = &[
    ("AllAlpha", &[false]),
    ("AllBeta", &[true]),
    ("CompactHashCheck", &[false]),
    ("FastLeaseKeepAlive", &[true, false]),
    ("InitialCorruptCheck", &[true, false]),
    ("LeaseCheckpoint", &[false]),
    ("LeaseCheckpointPersist", &[false]),
    ("PriorityRequest", &[false]),
    ("SetMemberLocalAddr", &[false]),
    ("StopGRPCServiceOnDefrag", &[false]),
    ("TxnModeWriteWithSharedBuffer", &[true]),
];

/// The gates that are set to a value without effect, each as `Name=value`.
#[derive(PartialEq)]
pub(super) struct FeatureGates(BTreeSet<String>);

impl FlagValue for FeatureGates {
    const KIND: ValueKind = ValueKind::Text;

    /// Parses `Name=true,Name=false`. The errors are those of etcd.
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut without_effect = BTreeSet::new();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (name.trim(), value.trim());
            if !pair.contains('=') {
                return Err(ConfigError::new(format!("missing bool value for {name}")));
            }
            let value = bool::parse(value).map_err(|_| {
                ConfigError::new(format!(
                    "invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: \
                     invalid syntax"
                ))
            })?;
            let Some((_, silent)) = GATES.iter().find(|(gate, _)| *gate == name) else {
                let message = format!("unrecognized feature gate: {name}");
                return Err(ConfigError::new(message));
            };
            if !silent.contains(&value) {
                without_effect.insert(format!("{name}={value}"));
            }
        }
        Ok(Self(without_effect))
    }
}
