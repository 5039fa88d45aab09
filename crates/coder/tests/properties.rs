//! What holds for every code, shape, length and set of lost units.

use hayloft_coder::{Codec, Coder, CoderError};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// The policies that Hadoop ships.
const SHIPPED: [(Codec, usize, usize); 5] = [
    (Codec::ReedSolomon, 3, 2),
    (Codec::ReedSolomon, 6, 3),
    (Codec::ReedSolomon, 10, 4),
    (Codec::ReedSolomonLegacy, 6, 3),
    (Codec::Xor, 2, 1),
];

/// Product in the field, bit by bit: an opinion that does not come from the kernel.
fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b > 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1d;
        }
        b >>= 1;
    }
    product
}

/// All units of a group, encoded.
fn units(coder: &Coder, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0; data[0].len()]; coder.parity_units()];
    let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    coder
        .encode(&inputs, &mut slices(&mut parity))
        .expect("fitting buffers");
    data.iter().cloned().chain(parity).collect()
}

fn slices(buffers: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    buffers.iter_mut().map(Vec::as_mut_slice).collect()
}

/// A coder, its data, which units are left (more than it needs, in any order), and which of the
/// others are wanted.
fn cases() -> impl Strategy<Value = (Codec, Vec<Vec<u8>>, usize, Vec<usize>)> {
    let own = (select(&Codec::ALL[..2]), 1..17_usize, 1..17_usize);
    let shape = prop_oneof![select(&SHIPPED[..]), own];
    (shape, 0..400_usize).prop_flat_map(|((codec, k, m), length)| {
        let data = prop::collection::vec(prop::collection::vec(any::<u8>(), length), k);
        let lost = subsequence((0..k + m).collect::<Vec<_>>(), 1..=m).prop_shuffle();
        (Just(codec), data, Just(m), lost)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn lost_units_come_back((codec, data, m, lost) in cases()) {
        let coder = Coder::new(codec, data.len(), m).expect("a possible shape");
        let all = units(&coder, &data);
        let mut sources: Vec<(usize, &[u8])> = all
            .iter()
            .enumerate()
            .filter(|(index, _)| !lost.contains(index))
            .map(|(index, unit)| (index, unit.as_slice()))
            .collect();
        // Any order, any choice of those that are left.
        let by = lost[0] % sources.len();
        sources.rotate_left(by);
        let mut out = vec![vec![0xa5; data[0].len()]; lost.len()];
        coder.reconstruct(&sources, &lost, &mut slices(&mut out)).expect("enough is left");
        for (unit, decoded) in lost.iter().zip(&out) {
            prop_assert_eq!(&all[*unit], decoded, "unit {}", unit);
        }
    }

    #[test]
    fn parity_can_be_added_up_unit_by_unit((codec, data, m, _) in cases()) {
        let coder = Coder::new(codec, data.len(), m).expect("a possible shape");
        let all = units(&coder, &data);
        let mut parity = vec![vec![0; data[0].len()]; m];
        for (unit, bytes) in data.iter().enumerate().rev() {
            coder.update(unit, bytes, &mut slices(&mut parity)).expect("fitting buffers");
        }
        prop_assert_eq!(&all[data.len()..], parity.as_slice());
    }

    #[test]
    fn pieces_are_coded_alone((codec, data, m, _) in cases(), at in any::<prop::sample::Index>()) {
        let coder = Coder::new(codec, data.len(), m).expect("a possible shape");
        let at = at.index(data[0].len() + 1);
        let all = units(&coder, &data);
        let part = |from: usize, to: usize| -> Vec<Vec<u8>> {
            units(&coder, &data.iter().map(|unit| unit[from..to].to_vec()).collect::<Vec<_>>())
        };
        let joined = part(0, at).into_iter().zip(part(at, data[0].len()));
        let joined: Vec<Vec<u8>> = joined.map(|(one, other)| [one, other].concat()).collect();
        prop_assert_eq!(all, joined);
    }

    /// By the definition of the Cauchy code: parity unit `p` is the sum of the data units over
    /// `p + d`.
    #[test]
    fn cauchy_parity_is_what_it_is_defined_as((_, data, m, _) in cases()) {
        let coder = Coder::new(Codec::ReedSolomon, data.len(), m).expect("a possible shape");
        let all = units(&coder, &data);
        let inverse = |a: u8| (1..=255).find(|&b| times(a, b) == 1).expect("not zero");
        for (p, parity) in all.iter().enumerate().skip(data.len()) {
            let factors: Vec<u8> = (0..data.len())
                .map(|d| inverse(u8::try_from(p ^ d).expect("few units")))
                .collect();
            for (at, &found) in parity.iter().enumerate() {
                let terms = data.iter().zip(&factors);
                let sum = terms.fold(0, |sum, (unit, &factor)| sum ^ times(factor, unit[at]));
                prop_assert_eq!(found, sum);
            }
        }
    }
}

#[test]
fn impossible_shapes_are_refused() {
    let shape = |codec, k, m| {
        Coder::new(codec, k, m)
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    for codec in Codec::ALL {
        for (k, m) in [(0, 1), (1, 0), (255, 1), (usize::MAX, 1), (1, usize::MAX)] {
            assert!(shape(codec, k, m).is_err(), "{codec} {k} {m}");
        }
        assert_eq!(shape(codec, 254, 1), Ok(()));
    }
    let error = shape(Codec::Xor, 2, 2).expect_err("two parity units");
    assert!(
        error.contains("xor takes at least 1 data unit, 1 parity unit"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_decoded_is_refused_and_nothing_is_written() {
    let coder = Coder::new(Codec::ReedSolomon, 3, 2).expect("a shape of HDFS");
    let all = units(&coder, &[vec![1; 8], vec![2; 8], vec![3; 8]]);
    let source = |index: usize| (index, all[index].as_slice());
    let refused = |sources: &[(usize, &[u8])], wanted: &[usize], lengths: &[usize]| {
        let mut out: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![7; length]).collect();
        let outcome = coder.reconstruct(sources, wanted, &mut slices(&mut out));
        let untouched = out.iter().flatten().all(|&byte| byte == 7);
        assert!(untouched, "written in spite of {outcome:?}");
        outcome.expect_err("refused")
    };
    let enough = [source(0), source(1), source(2)];
    let too_few = CoderError::TooFew {
        given: 2,
        needed: 3,
    };
    assert_eq!(refused(&enough[..2], &[2], &[8]), too_few);
    let count = refused(&enough, &[3, 4], &[8]);
    assert!(
        matches!(
            count,
            CoderError::Count {
                given: 1,
                expected: 2,
                ..
            }
        ),
        "{count}"
    );
    let length = CoderError::Length {
        given: 9,
        expected: 8,
    };
    assert_eq!(refused(&enough, &[3], &[9]), length);
    let short = [source(0), source(1), (2, &all[2][..7])];
    assert_eq!(
        refused(&short, &[3], &[8]),
        CoderError::Length {
            given: 7,
            expected: 8
        }
    );
    let last = CoderError::NoSuchUnit { unit: 5, last: 4 };
    assert_eq!(refused(&enough, &[5], &[8]), last);
    let twice = [source(0), source(1), source(1)];
    assert_eq!(refused(&twice, &[2], &[8]), CoderError::Twice { unit: 1 });
    assert_eq!(refused(&enough, &[1], &[8]), CoderError::Twice { unit: 1 });
    assert_eq!(
        refused(&enough, &[4, 4], &[8, 8]),
        CoderError::Twice { unit: 4 }
    );
}

#[test]
fn encoding_and_updates_check_their_buffers() {
    let coder = Coder::new(Codec::Xor, 2, 1).expect("a shape of HDFS");
    let mut parity = [0_u8; 4];
    let encode = |data: &[&[u8]], parity: &mut [u8]| coder.encode(data, &mut [parity]);
    let count = encode(&[&[1; 4]], &mut parity).expect_err("one unit");
    assert!(
        matches!(
            count,
            CoderError::Count {
                given: 1,
                expected: 2,
                ..
            }
        ),
        "{count}"
    );
    let length = encode(&[&[1; 4], &[1; 5]], &mut parity).expect_err("two lengths");
    assert_eq!(
        length,
        CoderError::Length {
            given: 5,
            expected: 4
        }
    );
    let unit = coder
        .update(2, &[1; 4], &mut [&mut parity])
        .expect_err("parity");
    assert_eq!(unit, CoderError::NoSuchUnit { unit: 2, last: 1 });
    let length = coder
        .update(0, &[1; 3], &mut [&mut parity])
        .expect_err("short");
    assert_eq!(
        length,
        CoderError::Length {
            given: 4,
            expected: 3
        }
    );
    assert_eq!(parity, [0; 4]);
    coder
        .encode(&[&[], &[]], &mut [&mut []])
        .expect("units of no bytes");
}
