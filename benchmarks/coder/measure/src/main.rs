// SPDX-License-Identifier: Apache-2.0
//! `coder-measure ROUNDS MILLISECONDS [PART]`: processor times of encoding and decoding as JSON lines, in
//! nanoseconds.
//!
//! A round measures everything once, one after the other, so that a slow spell of the machine meets what is compared.
//! A line is `{"round", "case", "name", "count", "lost", "ns"}`: `ns` for one repetition, the mean of those that took so
//! many milliseconds. With PART, only what has it in "case name count". Results are checked before anything is measured.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Duration;

use atoll_gf256::{Arithmetic, Field, Kernel, Term};
use atoll_random::SplitMix64;
use atoll_rlnc::{
    BlockCode, BlockDecoder, BlockEncoder, Header, ReedSolomon, Rlnc, WindowDecoder, WindowEncoder,
};
use rand::RngCore;
use rlnc::full::{Decoder, Encoder};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of a packet, and of its symbol.
const PACKET: usize = 1400;
const SYMBOL: usize = PACKET + 2;
/// Packets of a generation, of which so many are lost.
const CASES: [(u16, u16); 4] = [(16, 4), (30, 6), (64, 13), (256, 51)];
/// Windows of packets that a stream is long.
const WINDOWS: u16 = 16;
/// Sources of a combination in the measurement of kernels.
const SOURCES: usize = 64;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| {
        arguments.next().map_or(default, |argument| {
            argument.parse().expect("a whole number")
        })
    };
    let (rounds, milliseconds) = (number(3), number(5));
    let part = arguments.next().unwrap_or_default();
    let kernels = kernels();
    let cases: Vec<_> = CASES
        .iter()
        .flat_map(|(count, lost)| codes(*count, *lost))
        .collect();
    for round in 0..rounds {
        for each in kernels.iter().chain(&cases) {
            let Measurement {
                case,
                name,
                count,
                lost,
                windows,
                step,
            } = each;
            if !format!("{case} {name} {count}").contains(&part) {
                continue;
            }
            let ns = time(step, Duration::from_millis(milliseconds)) / f64::from(*windows);
            println!(
                r#"{{"round": {round}, "case": "{case}", "name": "{name}", "count": {count}, "lost": {lost}, "ns": {ns:.1}}}"#
            );
        }
    }
}

struct Measurement {
    case: &'static str,
    name: String,
    count: u16,
    lost: u16,
    /// How many times `count` packets a step has.
    windows: u16,
    step: Box<dyn Fn()>,
}

fn time(step: &dyn Fn(), least: Duration) -> f64 {
    step();
    let (began, mut repetitions, mut batch) = (processor_time(), 0_u32, 1);
    loop {
        for _ in 0..batch {
            step();
        }
        repetitions += batch;
        let passed = processor_time().saturating_sub(began);
        if passed >= least {
            return passed.as_nanos() as f64 / f64::from(repetitions);
        }
        batch = (batch * 2).min(64);
    }
}

/// Of this thread: what other processes take of the machine is not in it.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn packets(count: u16) -> Vec<Vec<u8>> {
    let mut draws = SplitMix64::at(&[u64::from(count)]);
    (0..count)
        .map(|_| (0..PACKET).map(|_| draws.next_u64() as u8).collect())
        .collect()
}

/// A combination of 64 sources of 1402 bytes.
fn kernels() -> Vec<Measurement> {
    let sources = packets(SOURCES as u16);
    let sources: Vec<Vec<u8>> = sources
        .iter()
        .map(|packet| [&[5, 120], packet.as_slice()].concat())
        .collect();
    let measurement = |name: String, step: Box<dyn Fn()>| Measurement {
        case: "kernel",
        name,
        count: SOURCES as u16,
        lost: 0,
        windows: 1,
        step,
    };
    let mut found = Vec::new();
    for kernel in Kernel::available() {
        for at_once in [SOURCES, 1] {
            let (arithmetic, sources) = (
                Arithmetic::with_kernel(Field::Aes, kernel).expect("available"),
                sources.clone(),
            );
            let factors = factors();
            let step = move || {
                let mut sum = [0; SYMBOL];
                let terms = sources.iter().zip(&factors).map(|(source, factor)| Term {
                    source,
                    factor: *factor,
                });
                let mut terms: Vec<Term> = terms.collect();
                for some in terms.chunks_mut(at_once) {
                    arithmetic.add_products(&mut sum, some);
                }
                black_box(&sum);
            };
            found.push(measurement(format!("{kernel:?} {at_once}"), Box::new(step)));
        }
    }
    let mut data = sources.concat();
    data.pop(); // room for that crate's end mark
    let encoder = Encoder::new(data, SOURCES).expect("data for all pieces");
    assert_eq!(encoder.get_piece_byte_len(), SYMBOL);
    let step = move || {
        let mut piece = [0; SOURCES + SYMBOL];
        encoder
            .code_with_buf(&mut Draws(SplitMix64::at(&[1])), &mut piece)
            .expect("a buffer of the right length");
        black_box(&piece);
    };
    found.push(measurement("rlnc 1".into(), Box::new(step)));
    found
}

fn factors() -> Vec<u8> {
    let mut draws = SplitMix64::at(&[2]);
    (0..SOURCES).map(|_| draws.next_u64() as u8).collect()
}

/// Cheap random numbers for the peer, so that they are not what is measured.
struct Draws(SplitMix64);

impl RngCore for Draws {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u64() as u32
    }
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.0.next_u64().to_le_bytes()[..part.len()]);
        }
    }
}

/// Encoding and decoding of a generation with exactly as many losses as repair packets, of all codes.
fn codes(count: u16, lost: u16) -> Vec<Measurement> {
    let measurement = |case, name: &str, step| Measurement {
        case,
        name: name.into(),
        count,
        lost,
        windows: 1,
        step,
    };
    let (sources, kept) = (packets(count), kept(count, lost));
    let mut found = Vec::new();
    let codes: [(&str, fn(u16, u16) -> Box<dyn BlockCode>); 2] = [
        ("atoll-rlnc", |size, _| Box::new(Rlnc { size })),
        ("Reed-Solomon", |size, repairs| {
            Box::new(ReedSolomon { size, repairs })
        }),
    ];
    for (name, code) in codes {
        // Both are used again for generation after generation, as in a coder.
        let code = code(count, lost);
        let mut encoder = code.encoder(1).expect("a size that the code has");
        let mut decoder = code.decoder(1, PACKET).expect("a size that the code has");
        let mut repairs = vec![(0, 0, Vec::new()); usize::from(lost)];
        for _ in 0..2 {
            encode(&mut *encoder, &sources, &mut repairs);
            let right = decode(&mut *decoder, &kept, &sources, &repairs, |index, packet| {
                assert_eq!(packet, sources[usize::from(index)], "{name}, n = {count}");
            });
            assert_eq!(right, lost, "{name}, n = {count}");
        }
        let for_encoder = RefCell::new((encoder, repairs.clone()));
        let packets = sources.clone();
        let step = move || {
            let (encoder, repairs) = &mut *for_encoder.borrow_mut();
            encode(&mut **encoder, &packets, repairs);
            black_box(repairs);
        };
        found.push(measurement("encode", name, Box::new(step)));
        let (decoder, sources, kept) = (RefCell::new(decoder), sources.clone(), kept.clone());
        let step = move || {
            let decoder = &mut **decoder.borrow_mut();
            decode(decoder, &kept, &sources, &repairs, |_, packet| {
                black_box(packet);
            });
        };
        found.push(measurement("decode", name, Box::new(step)));
    }
    let mut data = sources.concat();
    data.pop();
    // The peer with systematic packets, as the others have them; and as it is meant, with coded pieces only.
    let coded = pieces(&data, count, &[], count + 8);
    assert!(
        recovered(count, &coded) == data,
        "the peer does not decode n = {count}"
    );
    let pieces = pieces(&data, count, &kept, lost);
    assert!(
        recovered(count, &pieces) == data,
        "the peer does not decode n = {count}"
    );
    let step = {
        let data = data.clone();
        move || {
            let encoder =
                Encoder::new(data.clone(), usize::from(count)).expect("data for all pieces");
            for _ in 0..lost {
                black_box(encoder.code(&mut Draws(SplitMix64::at(&[3]))));
            }
        }
    };
    found.push(measurement("encode", "rlnc", Box::new(step)));
    let step = move || drop(black_box(recovered(count, &pieces)));
    found.push(measurement("decode", "rlnc", Box::new(step)));
    let step = move || drop(black_box(recovered(count, &coded)));
    found.push(measurement("decode", "rlnc, all coded", Box::new(step)));
    let step = move || {
        let encoder = Encoder::new(data.clone(), usize::from(count)).expect("data for all pieces");
        for _ in 0..count {
            black_box(encoder.code(&mut Draws(SplitMix64::at(&[3]))));
        }
    };
    found.push(measurement("encode", "rlnc, all coded", Box::new(step)));
    found.extend(sliding_window(count, lost));
    found
}

/// A stream of packets with as many repair packets for `count` packets, evenly spread, each of the last `count` packets.
/// Half as many packets are lost as there are repair packets: with as many, few would come back before they leave.
fn sliding_window(count: u16, repairs: u16) -> [Measurement; 2] {
    let sources = packets(count * WINDOWS);
    let mut draws = SplitMix64::at(&[u64::from(count), 8]);
    let is_lost: Vec<bool> = sources
        .iter()
        .map(|_| draws.up_to(2 * u64::from(count) - 1) < u64::from(repairs))
        .collect();
    let mut sent = Vec::new(); // repair packets, each with the number of packets before it
    encode_stream(&sources, count, repairs, |before, header, symbol| {
        sent.push((before, header, symbol.clone()));
    });
    let unrecovered = decode_stream(&sources, count, &is_lost, &sent);
    let lost = is_lost.iter().filter(|lost| **lost).count();
    assert!(
        unrecovered * 3 <= lost,
        "{unrecovered} of {lost} stay lost, n = {count}"
    );
    let measurement = |case, step| Measurement {
        case,
        name: "sliding window".into(),
        count,
        lost: repairs,
        windows: WINDOWS,
        step,
    };
    let packets = sources.clone();
    let encode = move || {
        encode_stream(&packets, count, repairs, |_, _, symbol| {
            black_box(symbol);
        })
    };
    let decode = move || {
        black_box(decode_stream(&sources, count, &is_lost, &sent));
    };
    [
        measurement("encode", Box::new(encode)),
        measurement("decode", Box::new(decode)),
    ]
}

/// `send` sees each repair packet with the number of packets before it.
fn encode_stream(
    sources: &[Vec<u8>],
    count: u16,
    repairs: u16,
    mut send: impl FnMut(usize, Header, &mut Vec<u8>),
) {
    let mut encoder = WindowEncoder::new(0, count).expect("a size that the code has");
    let (mut due, mut symbol) = (0, Vec::new());
    for (number, source) in sources.iter().enumerate() {
        encoder.push(source).expect("not too long");
        due += repairs;
        if due >= count {
            due -= count;
            let header = encoder.repair(&mut symbol).expect("packets to combine");
            send(number + 1, header, &mut symbol);
        }
    }
}

/// The number of packets that stay lost.
fn decode_stream(
    sources: &[Vec<u8>],
    count: u16,
    is_lost: &[bool],
    sent: &[(usize, Header, Vec<u8>)],
) -> usize {
    let mut decoder = WindowDecoder::new(2 * count, PACKET).expect("a size that the code has");
    let (mut sent, mut missing) = (sent.iter().peekable(), 0);
    for (number, source) in sources.iter().enumerate() {
        if is_lost[number] {
            missing += 1;
        } else {
            decoder
                .source(number as u32, source)
                .expect("one of the stream");
        }
        while let Some((_, header, symbol)) = sent.next_if(|(before, ..)| *before == number + 1) {
            let Header::WindowRepair { first, count, seed } = *header else {
                panic!("{header:?}");
            };
            decoder
                .repair(first, count, seed, symbol)
                .expect("one of the stream");
        }
        for (number, packet) in decoder.recovered() {
            assert_eq!(packet, sources[number as usize]);
            missing -= 1;
        }
    }
    missing
}

/// The numbers of the packets that arrive; the lost ones are spread at random.
fn kept(count: u16, lost: u16) -> Vec<u16> {
    let mut draws = SplitMix64::at(&[u64::from(count), 7]);
    let mut kept: Vec<u16> = (0..count).collect();
    for _ in 0..lost {
        kept.remove(draws.up_to(kept.len() as u64 - 1) as usize);
    }
    kept
}

type Repair = (u16, u32, Vec<u8>);

/// Encode a generation from its first packet on; its repair packets replace the content of `repairs`.
fn encode(encoder: &mut dyn BlockEncoder, sources: &[Vec<u8>], repairs: &mut [Repair]) {
    encoder.restart(1);
    for source in sources {
        encoder.push(source).expect("room for all");
    }
    for (count, seed, symbol) in repairs {
        match encoder.repair(symbol).expect("as many as configured") {
            Header::Repair {
                count: of,
                seed: number,
                ..
            } => (*count, *seed) = (of, number),
            other => panic!("{other:?}"),
        }
    }
}

/// Decode a generation from the first packet that arrives on; the number of packets recovered, which `take` sees.
fn decode(
    decoder: &mut dyn BlockDecoder,
    kept: &[u16],
    sources: &[Vec<u8>],
    repairs: &[Repair],
    mut take: impl FnMut(u16, &[u8]),
) -> u16 {
    decoder.restart(1);
    for index in kept {
        decoder
            .systematic(*index, &sources[usize::from(*index)])
            .expect("one of the generation");
    }
    for (count, seed, symbol) in repairs {
        decoder
            .repair(*count, *seed, symbol)
            .expect("one of the generation");
    }
    let mut recovered = 0;
    decoder.take_recovered(&mut |index, packet| {
        take(index, packet);
        recovered += 1;
    });
    recovered
}

/// The peer's pieces: those that arrive are as they were, with the rows of a unit matrix for coefficients.
fn pieces(data: &[u8], count: u16, kept: &[u16], repairs: u16) -> Vec<Vec<u8>> {
    let encoder = Encoder::new(data.to_vec(), usize::from(count)).expect("data for all pieces");
    let mut whole = data.to_vec();
    whole.push(0x81); // its end mark
    let mut draws = Draws(SplitMix64::at(&[4]));
    let unit = |index: &u16| {
        let index = usize::from(*index);
        let mut piece = vec![0; usize::from(count)];
        piece[index] = 1;
        piece.extend_from_slice(&whole[index * PACKET..(index + 1) * PACKET]);
        piece
    };
    kept.iter()
        .map(unit)
        .chain((0..repairs).map(|_| encoder.code(&mut draws)))
        .collect()
}

fn recovered(count: u16, pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut decoder = Decoder::new(PACKET, usize::from(count)).expect("pieces");
    for piece in pieces {
        if decoder.is_already_decoded() {
            break;
        }
        let _ = decoder.decode(piece);
    }
    decoder.get_decoded_data().unwrap_or_default()
}
