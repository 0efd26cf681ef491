//! The flags of the watch cache: of kube-apiserver's sizes only whether they are 0 matters.

use revstore_host::config::{ConfigError, Values};

use super::flags;

/// Checks the flags, and warns about those that ask for resources without a cache.
pub(super) fn check(values: &mut Values) -> Result<(), ConfigError> {
    let mut uncached = Vec::new();
    if !values.get(&flags::WATCH_CACHE) {
        uncached.push("--watch-cache=false".to_owned());
    }
    if values.get(&flags::DEFAULT_WATCH_CACHE_SIZE) <= 0 {
        uncached.push("--default-watch-cache-size=0".to_owned());
    }
    let sizes = values.get(&flags::WATCH_CACHE_SIZES);
    for setting in sizes.split(',').filter(|setting| !setting.is_empty()) {
        if size(setting)? == 0 {
            uncached.push(format!("--watch-cache-sizes={setting}"));
        }
    }
    for flag in uncached {
        values.warn(format!(
            "{flag} has no effect: the cache has the state of the store and answers all reads"
        ));
    }
    Ok(())
}

/// Returns the size in a setting `resource[.group]#size`.
fn size(setting: &str) -> Result<u64, ConfigError> {
    let fail = |problem: &str| ConfigError::new(format!("{problem}: {setting}"));
    let Some((_, size)) = setting
        .split_once('#')
        .filter(|(_, size)| !size.contains('#'))
    else {
        return Err(fail("invalid value of watch cache size"));
    };
    match size.parse::<i64>() {
        Ok(size) => u64::try_from(size).map_err(|_| fail("watch cache size cannot be negative")),
        Err(_) => Err(fail("invalid size of watch cache size")),
    }
}
