//! The value of `--log-rotation-config-json`.

use std::time::Duration;

use revstore_host::{
    config::{ConfigError, Values},
    logging::LogRotation,
};
use serde_json::{Map, Value, error::Category};

use super::flags;

const MIB: u64 = 1 << 20;
const DAY: Duration = Duration::from_secs(86_400);

/// Returns the rotation of the file in `outputs`, if it is enabled. Errors are those of etcd.
pub(super) fn rotation(
    values: &Values,
    outputs: &[&str],
) -> Result<Option<LogRotation>, ConfigError> {
    if !values.get(&flags::ENABLE_LOG_ROTATION) {
        return Ok(None);
    }
    let is_stream = |output: &&&str| matches!(**output, "default" | "stderr" | "stdout");
    if outputs.iter().filter(|output| !is_stream(output)).count() != 1 {
        return Err(ConfigError::new(
            "--log-outputs requires a single file path when --log-rotate-config-json is defined"
                .to_owned(),
        ));
    }
    let text = values.get(&flags::LOG_ROTATION_CONFIG_JSON);
    let config: Map<String, Value> = serde_json::from_str(&text).map_err(|error| {
        let reason = match error.classify() {
            Category::Data => "invalid",
            _ => "improperly formatted",
        };
        ConfigError::new(format!("{reason} log rotation config: {error}"))
    })?;
    let mut rotation = LogRotation::default();
    for (key, value) in &config {
        let invalid = |expected| {
            ConfigError::new(format!(
                "invalid log rotation config: {key:?} is {value}, not {expected}"
            ))
        };
        let number = || match value {
            Value::Null => Ok(0),
            value => value.as_i64().ok_or_else(|| invalid("an integer")),
        };
        let flag = || match value {
            Value::Null => Ok(false),
            value => value.as_bool().ok_or_else(|| invalid("a boolean")),
        };
        // As in Go, keys match in any case, further ones are ignored, and a number below 0 is none.
        match key.to_ascii_lowercase().as_str() {
            "maxsize" => {
                if let Ok(mib @ 1..) = u64::try_from(number()?) {
                    rotation = rotation.bytes_max(mib.saturating_mul(MIB));
                }
            }
            "maxage" => {
                let days = u32::try_from(number()?).ok().filter(|days| *days > 0);
                rotation = rotation.age_max(days.and_then(|days| DAY.checked_mul(days)));
            }
            "maxbackups" => {
                let count = usize::try_from(number()?).ok();
                rotation = rotation.backups_max(count.filter(|count| *count > 0));
            }
            "compress" => rotation = rotation.compress(flag()?),
            "localtime" => rotation = rotation.local_time(flag()?),
            _ => {}
        }
    }
    Ok(Some(rotation))
}
