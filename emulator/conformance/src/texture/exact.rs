//! Coordinates in exact arithmetic: integer multiples of a small power of two.

/// Number of fractional bits.
const BITS: u32 = 60;

/// A number, as a multiple of 2^-60.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exact(i128);

impl Exact {
    /// Converts an f32 that is neither too small nor too large to be exact here.
    pub fn of(value: f32) -> Exact {
        let scaled = f64::from(value) * (1u64 << BITS) as f64;
        assert!(scaled == scaled.trunc() && scaled.abs() < 1e30, "{value} is exact");
        Exact(scaled as i128)
    }

    pub fn whole(value: i64) -> Exact {
        Exact(i128::from(value) << BITS)
    }

    pub fn half() -> Exact {
        Exact(1 << (BITS - 1))
    }

    pub fn floor(self) -> i64 {
        (self.0 >> BITS) as i64
    }

    /// Returns the part above the floor.
    pub fn fraction(self) -> Exact {
        Exact(self.0 - (self.0 >> BITS << BITS))
    }

    /// Returns the number in units of 1/256, rounded to nearest, halves up.
    pub fn in_256ths(self) -> i128 {
        (self.0 + (1 << (BITS - 9))) >> (BITS - 8)
    }

    pub fn plus(self, other: Exact) -> Exact {
        Exact(self.0 + other.0)
    }

    pub fn minus(self, other: Exact) -> Exact {
        Exact(self.0 - other.0)
    }

    pub fn times(self, whole: u32) -> Exact {
        Exact(self.0 * i128::from(whole))
    }

    /// Returns the quotient of two small numbers, if it is exact.
    pub fn over(self, divisor: Exact) -> Exact {
        let scaled = self.0.checked_mul(1 << BITS).expect("the number is small");
        assert!(scaled % divisor.0 == 0, "the quotient is exact");
        Exact(scaled / divisor.0)
    }

    pub fn is_negative(self) -> bool {
        self.0 < 0
    }

    pub fn magnitude(self) -> Exact {
        Exact(self.0.abs())
    }

    pub fn negated(self) -> Exact {
        Exact(-self.0)
    }
}
