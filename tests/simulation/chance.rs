//! Draws that follow from a seed alone.

/// A generator (SplitMix64). Whoever asks in the same order gets the same draws.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut drawn = self.0;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        drawn ^ (drawn >> 31)
    }

    /// A number below the limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Whether one of so many.
    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// A place in a list of this length.
    pub(crate) fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.place(all.len())]
    }

    /// One of these, each as often as its weight says.
    pub(crate) fn weighed<T: Copy>(&mut self, all: &[(u64, T)]) -> T {
        let mut drawn = self.below(all.iter().map(|(weight, _)| weight).sum());
        for (weight, one) in all {
            match drawn.checked_sub(*weight) {
                Some(rest) => drawn = rest,
                None => return *one,
            }
        }
        unreachable!("the weights add up")
    }
}
