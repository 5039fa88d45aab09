//! Parity that Hadoop's own coders computed (`hadoop/wire-check` writes the file and compares it).

use hayloft_coder::{Codec, Coder};

const GOLDEN: &str = include_str!("golden/hadoop-3.5.0.txt");

/// As `bytesOf` in the Java test.
fn data_unit(unit: usize, length: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((31 * at + 59 * unit + at / 7) % 256).expect("a byte");
    (0..length).map(byte).collect()
}

fn from_hex(line: &str) -> Vec<u8> {
    let digits = line.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16);
    digits
        .map(|pair| byte(pair).expect("hexadecimal"))
        .collect()
}

struct Vector {
    coder: Coder,
    data: Vec<Vec<u8>>,
    parity: Vec<Vec<u8>>,
}

fn vectors() -> Vec<Vector> {
    let mut lines = GOLDEN.lines();
    let mut vectors = Vec::new();
    while let Some(head) = lines.next() {
        let words: Vec<&str> = head.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().expect("a number");
        let (data, parity, length) = (number(1), number(2), number(3));
        let codec = Codec::by_name(words[0]).expect("a code of HDFS");
        vectors.push(Vector {
            coder: Coder::new(codec, data, parity).expect("a shape of HDFS"),
            data: (0..data).map(|unit| data_unit(unit, length)).collect(),
            parity: lines.by_ref().take(parity).map(from_hex).collect(),
        });
    }
    vectors
}

#[test]
fn parity_is_hadoops() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 13, "the file is whole");
    for Vector {
        coder,
        data,
        parity,
    } in vectors
    {
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut out = vec![vec![0xa5; data[0].len()]; parity.len()];
        let mut buffers: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
        coder.encode(&data, &mut buffers).expect("fitting buffers");
        assert_eq!(out, parity, "{} {}", coder.codec(), coder.data_units());
    }
}

/// Data units come back from Hadoop's parity, with as many lost as there is parity.
#[test]
fn data_comes_back_from_hadoops_parity() {
    for Vector {
        coder,
        data,
        parity,
    } in vectors()
    {
        let lost = parity.len().min(data.len());
        for first in 0..=data.len() - lost {
            let wanted: Vec<usize> = (first..first + lost).collect();
            let all = data.iter().chain(&parity).enumerate();
            let sources: Vec<(usize, &[u8])> = all
                .filter(|(index, _)| !wanted.contains(index))
                .map(|(index, unit)| (index, unit.as_slice()))
                .collect();
            let mut out = vec![vec![0; data[0].len()]; lost];
            let mut buffers: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
            let decoded = coder.reconstruct(&sources, &wanted, &mut buffers);
            decoded.expect("enough is left");
            assert_eq!(
                out,
                data[first..first + lost],
                "{} from {first}",
                coder.codec()
            );
        }
    }
}
