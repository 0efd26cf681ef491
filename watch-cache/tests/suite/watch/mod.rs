//! T-24 to T-36, T-43, T-45, T-53, T-55: watches.

mod deliver;
mod neighbours;
mod select;
mod start;

use revstore_watch_cache::WatchOptions;

use crate::support::selector;

fn select(options: WatchOptions, labels: &str, fields: &str) -> WatchOptions {
    options.selector(selector(labels, fields))
}
