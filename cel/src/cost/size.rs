//! Ranges of sizes and costs.

/// The lowest and highest cost that an expression can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostEstimate {
    /// The lowest cost.
    pub min: u64,
    /// The highest cost.
    pub max: u64,
}

/// The size of a value is such a range, too.
pub(super) type Size = CostEstimate;

/// The size of which nothing is known.
pub(super) const UNKNOWN: Size = Size {
    min: 0,
    max: u64::MAX,
};

/// Multiplies, and rounds up.
pub(super) fn scaled(value: u64, factor: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "the conversion saturates"
    )]
    let product = (value as f64 * factor).ceil() as u64;
    product
}

impl CostEstimate {
    pub(super) const fn fixed(value: u64) -> Self {
        Self {
            min: value,
            max: value,
        }
    }

    pub(super) fn add(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(super) fn scale(self, factor: f64) -> Self {
        Self {
            min: scaled(self.min, factor),
            max: scaled(self.max, factor),
        }
    }

    /// Returns the range that contains both.
    pub(super) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}
