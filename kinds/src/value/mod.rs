//! Values whose text has a canonical form: bytes, quantities and times.

mod base64;
mod quantity;
pub(crate) mod time;

pub use base64::normalize_base64;
pub use quantity::{Quantity, QuantityError};
pub use time::check_time;
