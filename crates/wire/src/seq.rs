//! Sequence numbers of TCP.

use std::ops::{Add, AddAssign, Sub};

/// A sequence number of TCP (RFC 9293 section 3.4), of either side.
///
/// Numbers wrap: of two that are less than 2^31 apart one comes first. That orders the numbers of one flow at a time, but
/// not all numbers, so there is no [`Ord`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// The number in network byte order.
    pub fn from_be(number: u32) -> Self {
        Seq(u32::from_be(number))
    }

    /// Its number in network byte order.
    pub fn to_be(self) -> u32 {
        self.0.to_be()
    }

    /// Distance from `other`, in bytes; negative if this one comes first.
    pub fn offset_from(self, other: Seq) -> i32 {
        (self - other) as i32
    }

    /// Whether it comes before `other`.
    pub fn before(self, other: Seq) -> bool {
        self.offset_from(other) < 0
    }

    /// Whether it comes after `other`.
    pub fn after(self, other: Seq) -> bool {
        other.before(self)
    }

    /// The one of both that comes first.
    pub fn earlier(self, other: Seq) -> Seq {
        if other.before(self) { other } else { self }
    }

    /// The one of both that comes last.
    pub fn later(self, other: Seq) -> Seq {
        if self.before(other) { other } else { self }
    }
}

impl Add<u32> for Seq {
    type Output = Seq;

    fn add(self, len: u32) -> Seq {
        Seq(self.0.wrapping_add(len))
    }
}

impl Add<usize> for Seq {
    type Output = Seq;

    fn add(self, len: usize) -> Seq {
        self + len as u32
    }
}

impl<T> AddAssign<T> for Seq
where
    Seq: Add<T, Output = Seq>,
{
    fn add_assign(&mut self, len: T) {
        *self = *self + len;
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;

    fn sub(self, len: u32) -> Seq {
        Seq(self.0.wrapping_sub(len))
    }
}

impl Sub for Seq {
    /// Bytes from `other` up to this one, modulo 2^32.
    type Output = u32;

    fn sub(self, other: Seq) -> u32 {
        self.0.wrapping_sub(other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn order_is_that_of_a_window_wherever_numbers_wrap() {
        check!().with_iterations(10_000).with_type::<(u32, u32)>().for_each(|&(number, len)| {
            let (first, len) = (Seq(number), len % (1 << 31));
            let last = first + len;
            assert_eq!((last - first, last - len), (len, first));
            assert_eq!((last.offset_from(first), first.offset_from(last)), (len as i32, -(len as i32)));
            assert_eq!((first.before(last), last.after(first)), (len > 0, len > 0));
            assert!(!last.before(first) && !first.after(last));
            assert_eq!([first.earlier(last), last.earlier(first)], [first; 2]);
            assert_eq!([first.later(last), last.later(first)], [last; 2]);
        });
    }

    #[test]
    fn zero_comes_after_the_greatest_number() {
        let last = Seq(u32::MAX);
        assert!(last.before(Seq(0)) && Seq(0).after(last) && !Seq(0).before(last));
        assert_eq!((last + 1usize, Seq(0) - 1, Seq(0) - last), (Seq(0), last, 1));
    }
}
