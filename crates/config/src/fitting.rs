//! Which parts of a list go with a document that holds without them.

/// What [`take_fitting`] or [`all_or_fitting`] has made of a list.
#[derive(Debug)]
pub struct Fitting<'a, T, V, E> {
    /// What the check gave for the parts that were taken.
    pub value: V,
    /// The other parts, each with what the check said when it was tried.
    pub left_out: Vec<(&'a T, E)>,
    taken: Vec<T>,
}

/// Takes the parts in their order, each one with which `check` holds beside those that were taken before. `value` is what it
/// gives for none. A list with few misfits takes few checks: halves are tried as one.
pub fn take_fitting<'a, T: Clone, V, E>(
    value: V,
    parts: &'a [T],
    mut check: impl FnMut(&[T]) -> Result<V, E>,
) -> Fitting<'a, T, V, E> {
    let mut fitting = Fitting::new(value);
    fitting.take(parts, &mut check);
    fitting
}

/// Takes all parts if `check` holds with them, whatever it says of none; otherwise as [`take_fitting`]. The error is that of none.
pub fn all_or_fitting<'a, T: Clone, V, E>(
    parts: &'a [T],
    mut check: impl FnMut(&[T]) -> Result<V, E>,
) -> Result<Fitting<'a, T, V, E>, E> {
    match check(parts) {
        Ok(value) => Ok(Fitting::new(value)),
        Err(why) => {
            let mut fitting = Fitting::new(check(&[])?);
            fitting.take_halves(parts, why, &mut check);
            Ok(fitting)
        }
    }
}

impl<'a, T: Clone, V, E> Fitting<'a, T, V, E> {
    fn new(value: V) -> Self {
        Fitting { value, left_out: Vec::new(), taken: Vec::new() }
    }

    fn take(&mut self, parts: &'a [T], check: &mut impl FnMut(&[T]) -> Result<V, E>) {
        let before = self.taken.len();
        self.taken.extend_from_slice(parts);
        match check(&self.taken) {
            Ok(value) => self.value = value,
            Err(why) => {
                self.taken.truncate(before);
                self.take_halves(parts, why, check);
            }
        }
    }

    /// Takes parts that do not fit together, for this reason.
    fn take_halves(&mut self, parts: &'a [T], why: E, check: &mut impl FnMut(&[T]) -> Result<V, E>) {
        match parts {
            [] => {}
            [one] => self.left_out.push((one, why)),
            _ => {
                let (some, rest) = parts.split_at(parts.len() / 2);
                self.take(some, check);
                self.take(rest, check);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_fit_are_taken_and_few_misfits_take_few_checks() {
        let mut checks = 0;
        let check = |parts: &[u32]| {
            checks += 1;
            let misfit = parts.iter().find(|part| **part % 500 == 3);
            misfit.map_or(Ok(parts.to_vec()), |misfit| Err(*misfit))
        };
        let parts: Vec<u32> = (0..1000).collect();
        let fitting = take_fitting(Vec::new(), &parts, check);
        assert_eq!(fitting.left_out, [(&3, 3), (&503, 503)]);
        let others: Vec<u32> = parts.iter().copied().filter(|part| part % 500 != 3).collect();
        assert_eq!(fitting.value, others);
        assert!(checks < 50, "{checks} checks");
        assert_eq!(take_fitting(7, &[], |_: &[u32]| Err::<i32, _>("none")).value, 7);
    }

    #[test]
    fn of_two_parts_that_exclude_each_other_the_first_is_taken() {
        let check = |parts: &[u32]| if parts.len() > 1 { Err(()) } else { Ok(parts.to_vec()) };
        let fitting = take_fitting(Vec::new(), &[1, 2, 3], check);
        assert_eq!((fitting.value, fitting.left_out.len()), (vec![1], 2));
    }

    #[test]
    fn all_are_checked_once_and_none_only_if_they_do_not_fit() {
        let mut checked = Vec::new();
        let mut tried = |parts: &[u32], fits: fn(&[u32]) -> bool| {
            checked.clear();
            let fitting = all_or_fitting(parts, |parts| {
                checked.push(parts.to_vec());
                if fits(parts) { Ok(parts.len()) } else { Err(parts.len()) }
            });
            let outcome = fitting.map(|fitting| (fitting.value, fitting.left_out.len()));
            (outcome, checked.clone())
        };
        assert_eq!(tried(&[1, 2], |parts| !parts.is_empty()), (Ok((2, 0)), vec![vec![1, 2]]));
        assert_eq!(tried(&[1], |_| false), (Err(0), vec![vec![1], vec![]]));
        assert_eq!(tried(&[1], |parts| parts.is_empty()), (Ok((0, 1)), vec![vec![1], vec![]]));
        let steps = vec![vec![1, 2], vec![], vec![1], vec![1, 2]];
        assert_eq!(tried(&[1, 2], |parts| parts.len() < 2), (Ok((1, 1)), steps));
    }
}
