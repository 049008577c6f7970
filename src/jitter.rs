//! Chance, as a pure function: the same seed, key and number give the same draw.
//!
//! No generator is shared, so no order of events changes a delay, and a report
//! with seed and key repeats it.

use sha2::{Digest, Sha256};

/// The seed of all draws of one process. Logged at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// A new seed from the operating system.
    #[expect(clippy::disallowed_methods, reason = "the one place where chance comes in")]
    pub fn draw() -> Self {
        Self(rand::random())
    }

    /// A number from 0 (included) to 1 (excluded), for this text and number.
    pub fn unit(self, text: &str, number: u64) -> f64 {
        let mut hash = Sha256::new();
        hash.update(self.0.to_be_bytes());
        hash.update(number.to_be_bytes());
        hash.update(text.as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let high = digest.iter().take(4).fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte));
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_key_and_number_give_the_same_draw() {
        let draw = Seed(7).unit("harbor:create-followup:v1:case-104", 3);
        assert!((draw - Seed(7).unit("harbor:create-followup:v1:case-104", 3)).abs() < 1e-12);
        assert!((draw - Seed(8).unit("harbor:create-followup:v1:case-104", 3)).abs() > 0.0);
    }

    #[test]
    fn draws_are_spread_evenly() {
        let mean =
            (0..20_000).map(|n| Seed(1).unit(&format!("case-{n}"), 1)).sum::<f64>() / 20_000.0;
        assert!((0.49..0.51).contains(&mean), "{mean}");
    }
}
