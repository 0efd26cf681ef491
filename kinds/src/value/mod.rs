//! Values whose text has a canonical form: quantities and times.

mod quantity;
pub(crate) mod time;

pub use quantity::{Quantity, QuantityError};
pub use time::check_time;
