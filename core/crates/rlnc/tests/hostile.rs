// SPDX-License-Identifier: Apache-2.0
//! Whatever arrives, nothing panics, memory is bounded, and packets that arrived themselves are never altered.

use atoll_rlnc::{
    BlockCode, BlockEncoder, CodeError, GenerationDecoder, GenerationEncoder, Header, HeaderError,
    Recoder, ReedSolomon, Repetition, Rlnc, WindowDecoder, WindowEncoder,
};
use proptest::prelude::*;

/// Bytes that begin as headers do, with small numbers or any, so that they get far.
fn packet() -> impl Strategy<Value = Vec<u8>> {
    let small = prop_oneof![0_u32..20, Just(0_u32), Just(1023), Just(1024), any::<u32>()];
    (
        0xb0_u8..0xb6,
        small.clone(),
        small.clone(),
        small,
        prop::collection::vec(any::<u8>(), 0..80),
    )
        .prop_map(|(kind, number, block, seed, rest)| {
            let mut packet = vec![kind, 0];
            packet.extend_from_slice(&(number as u16).to_be_bytes());
            packet.extend_from_slice(&block.to_be_bytes());
            packet.extend_from_slice(&seed.to_be_bytes());
            packet.extend_from_slice(&rest);
            packet
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_bytes_are_a_header_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok((header, rest)) = Header::parse(&bytes) {
            let mut written = Vec::new();
            header.write(&mut written);
            written.extend_from_slice(rest);
            if let Header::WindowSource { .. } = header {
                written[2..4].copy_from_slice(&bytes[2..4]); // not used
            }
            prop_assert_eq!(written, bytes);
        }
    }

    #[test]
    fn decoders_survive_any_packets(
        packets in prop::collection::vec((packet(), any::<bool>()), 0..60),
        size in 2_u16..=20,
    ) {
        let codes: [&dyn BlockCode; 3] =
            [&Rlnc { size }, &ReedSolomon { size, repairs: 7 }, &Repetition { size }];
        let mut decoders = codes.map(|code| code.decoder(1, 60).unwrap());
        let mut generation = GenerationDecoder::new(1, size, 60).unwrap();
        let mut recoder = Recoder::new(1, size, 60, 1).unwrap();
        let mut window = WindowDecoder::new(size, 60).unwrap();
        for (packet, _) in &packets {
            let Ok((header, rest)) = Header::parse(packet) else { continue };
            match header {
                Header::Systematic { index, .. } => {
                    for decoder in &mut decoders {
                        let _ = decoder.systematic(index, rest);
                    }
                    let _ = recoder.systematic(index, rest);
                }
                Header::Repair { count, seed, .. } => {
                    for decoder in &mut decoders {
                        let _ = decoder.repair(count, seed, rest);
                    }
                    let _ = recoder.repair(count, seed, rest);
                }
                Header::Recoded { count, .. } => {
                    let (coefficients, symbol) = rest.split_at(usize::from(count).min(rest.len()));
                    let _ = generation.recoded(coefficients, symbol);
                    let _ = recoder.recoded(coefficients, symbol);
                }
                Header::WindowSource { id } => drop(window.source(id, rest)),
                Header::WindowRepair { first, count, seed } => drop(window.repair(first, count, seed, rest)),
                _ => {}
            }
            for decoder in &mut decoders {
                prop_assert!(decoder.recovered().len() <= usize::from(size));
                prop_assert!(decoder.missing() <= size);
            }
            prop_assert!(generation.rank() <= size);
            let _ = window.recovered();
        }
        let (mut coefficients, mut symbol) = (Vec::new(), Vec::new());
        if recoder.combine(&mut coefficients, &mut symbol).is_ok() {
            prop_assert!(coefficients.len() <= usize::from(size) && symbol.len() <= 63);
        }
    }

    #[test]
    fn damaged_repair_packets_alter_no_packet_that_arrived(lost in 0_u16..10, at in 0_usize..42, by in 1_u8..) {
        let mut encoder = GenerationEncoder::new(1, 10).unwrap();
        let mut decoder = Rlnc { size: 10 }.decoder(1, 60).unwrap();
        let mut symbol = Vec::new();
        for index in 0..10 {
            encoder.push(&[index as u8 + 1; 40]).unwrap();
            if index != lost {
                decoder.systematic(index, &[index as u8 + 1; 40]).unwrap();
            }
        }
        let Header::Repair { count, seed, .. } = encoder.repair(&mut symbol).unwrap() else { unreachable!() };
        symbol[at] ^= by;
        match decoder.repair(count, seed, &symbol) {
            // a wrong packet, of the right length: only a checksum could tell
            Ok(_) => {
                let recovered = decoder.recovered();
                prop_assert!(recovered.len() == 1 && recovered[0].0 == lost && at >= 2);
            }
            Err(error) => {
                prop_assert_eq!(error, CodeError::Damaged);
                prop_assert!(decoder.recovered().is_empty() && at < 2);
                // the packet itself still arrives, and nothing is computed from the others any more
                prop_assert!(decoder.systematic(lost, &[1]).is_ok());
                prop_assert!(decoder.repair(count, seed + 1, &symbol).is_ok());
            }
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let text = |error: &dyn std::error::Error| error.to_string();
    assert_eq!(
        text(&Header::parse(&[0xb1, 0, 0, 1, 0, 0, 0, 1]).unwrap_err()),
        "8 bytes: a header of this kind has 12"
    );
    assert_eq!(
        Header::parse(&[0x45; 20]).unwrap_err(),
        HeaderError::Kind(0x45, 0x45)
    );
    assert_eq!(
        text(&GenerationEncoder::new(0, 1).unwrap_err()),
        "a generation of 1 packets: 2 to 1024 are possible"
    );
    let mut encoder = GenerationEncoder::new(0, 2).unwrap();
    assert_eq!(
        text(&encoder.repair(&mut Vec::new()).unwrap_err()),
        "0 sources: this code has 1 to 2"
    );
    assert_eq!(
        encoder.push(&vec![0; 70_000]).unwrap_err(),
        CodeError::LongPacket(70_000)
    );
    assert!(encoder.push(&[]).is_ok() && encoder.push(&[]).is_ok());
    assert_eq!(
        encoder.push(&[]).unwrap_err(),
        CodeError::Sources {
            sources: 3,
            limit: 2
        }
    );
    let mut window = WindowEncoder::new(0, 2).unwrap();
    assert!(window.repair(&mut Vec::new()).is_err());
    let mut closed = ReedSolomon {
        size: 4,
        repairs: 1,
    }
    .encoder(0)
    .unwrap();
    closed.push(&[1]).unwrap();
    closed.repair(&mut Vec::new()).unwrap();
    assert_eq!(closed.push(&[1]).unwrap_err(), CodeError::Closed);
    assert_eq!(
        closed.repair(&mut Vec::new()).unwrap_err(),
        CodeError::Repairs(1)
    );
}
