//! The flags of control, which are those of `revstore`.

use revstore::{ControlConfig, ControlFlags};
use revstore_host::config::{ConfigError, Values};

use super::flags;

/// Returns the options of control, if it is on.
pub(super) fn control(values: &Values) -> Result<Option<ControlConfig>, ConfigError> {
    let others = [
        &flags::CONTROL_ALLOW_REMOTE.declaration,
        &flags::CONTROL_TOKEN_FILE.declaration,
        &flags::CONTROL_MEMORY_LIMIT.declaration,
        &flags::CONTROL_CLOCK.declaration,
        &flags::AUTO_ADVANCE_IDLE.declaration,
    ];
    let other = others.iter().find(|flag| values.is_given(flag));
    ControlConfig::of_flags(ControlFlags {
        url: values.get(&flags::CONTROL_LISTEN_URL).0,
        allow_remote: values.get(&flags::CONTROL_ALLOW_REMOTE),
        token_file: values.get(&flags::CONTROL_TOKEN_FILE),
        memory_limit: values.get(&flags::CONTROL_MEMORY_LIMIT),
        clock: values.get(&flags::CONTROL_CLOCK),
        idle: values.get(&flags::AUTO_ADVANCE_IDLE),
        other: other.map(|flag| flag.name),
    })
}
