// SPDX-License-Identifier: Apache-2.0
//! Temperature and throttling of the machine's processors, from the kernel's sysfs.
//!
//! | evidence of throttling | file below /sys | source |
//! |---|---|---|
//! | the frequency is limited because of the temperature | `class/thermal/cooling_device*/cur_state` of a processor | Linux, Documentation/driver-api/thermal/sysfs-api.rst |
//! | a count of thermal events rises (Intel) | `devices/system/cpu/cpu*/thermal_throttle/core_throttle_count` | Linux, Documentation/admin-guide/abi-stable |
//! | bits 1, 2, 3 now, or 17, 18, 19 since the look before | `devices/platform/soc/*/get_throttled` | Raspberry Pi documentation, `vcgencmd get_throttled` |
//! | the temperature is at its limit | `class/thermal/thermal_zone*/temp` and the zone's trip points | sysfs-api.rst |
//!
//! A machine that shows none of these has no sensors, and is never looked at: a virtual machine, for one.

use crate::machine_info::object;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two looks while jobs run: heat changes in seconds, and a look reads a handful of files.
const READ_INTERVAL: Duration = Duration::from_secs(5);

/// A trip point below this is a placeholder of the firmware (some ACPI zones have 20 °C), no limit.
const LEAST_LIMIT_C: f64 = 50.0;

/// From this temperature on the firmware of a Raspberry Pi slows its processors down (its documentation, "Frequency
/// management and thermal control"); its thermal zone shows only the temperature at which it switches off.
const RASPBERRY_PI_LIMIT_C: f64 = 80.0;

/// Bits of `get_throttled`: the voltage is too low; the frequency is capped, throttled, or limited by temperature.
const LOW_VOLTAGE: u32 = 1;
const THROTTLED: u32 = 0b1110;
/// The same bits this much higher mean: at some time since the machine was started.
const STICKY_SHIFT: u32 = 16;

/// The sensors of a machine, and what was seen since the agent began.
#[derive(Debug)]
pub struct Heat {
    zones: Vec<Zone>,
    /// `cur_state` of the cooling devices that slow processors down.
    coolers: Vec<PathBuf>,
    /// Counts of thermal events.
    counters: Vec<PathBuf>,
    /// `get_throttled` of a Raspberry Pi.
    firmware: Option<PathBuf>,
    next_read: Instant,
    last_reading: Option<Reading>,
    readings: u64,
    hot_readings: u64,
    low_voltage_readings: u64,
    now: Option<Temperature>,
    highest: Option<Temperature>,
}

#[derive(Debug)]
struct Zone {
    file: PathBuf,
    limit_c: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Temperature {
    celsius: f64,
    limit_c: Option<f64>,
}

/// Of the look before.
#[derive(Debug, Clone, Copy)]
struct Reading {
    events: u64,
    sticky: u32,
}

impl Heat {
    /// Find the sensors below `sysfs`, which is /sys.
    pub fn find(sysfs: &Path, now: Instant) -> Self {
        let model = read_text(&sysfs.join("firmware/devicetree/base/model")).unwrap_or_default();
        let zone_limit = if model.starts_with("Raspberry Pi") {
            RASPBERRY_PI_LIMIT_C
        } else {
            f64::INFINITY
        };
        let thermal = sysfs.join("class/thermal");
        let mut heat = Self {
            zones: children(&thermal, "thermal_zone")
                .iter()
                .filter_map(|path| Zone::read(path, zone_limit))
                .collect(),
            coolers: children(&thermal, "cooling_device")
                .iter()
                .filter(|p| read_text(&p.join("type")).is_some_and(|name| slows_processors(&name)))
                .map(|path| path.join("cur_state"))
                .collect(),
            counters: children(&sysfs.join("devices/system/cpu"), "cpu")
                .iter()
                .map(|path| path.join("thermal_throttle/core_throttle_count"))
                .filter(|path| path.exists())
                .collect(),
            firmware: children(&sysfs.join("devices/platform/soc"), "")
                .iter()
                .map(|path| path.join("get_throttled"))
                .find(|path| path.exists()),
            next_read: now,
            last_reading: None,
            readings: 0,
            hot_readings: 0,
            low_voltage_readings: 0,
            now: None,
            highest: None,
        };
        heat.read_sensors(now); // counts and bits of the past are not of this agent's time
        heat
    }

    /// Whether the machine shows anything.
    pub fn has_sensors(&self) -> bool {
        !(self.zones.is_empty()
            && self.coolers.is_empty()
            && self.counters.is_empty()
            && self.firmware.is_none())
    }

    /// When the next look is due; never on a machine without sensors.
    pub fn wake_at(&self) -> Option<Instant> {
        self.has_sensors().then_some(self.next_read)
    }

    /// Look if it is time.
    pub fn read_when_due(&mut self, now: Instant) {
        if self.has_sensors() && self.next_read <= now {
            self.read_sensors(now);
        }
    }

    /// Look now; the figures of a sample (`docs/contracts.md`, "Agent", metrics), null without sensors.
    pub fn sample(&mut self, now: Instant) -> Map<String, Value> {
        if self.has_sensors() {
            self.read_sensors(now);
        }
        let readings = |count: u64| self.has_sensors().then_some(count);
        object(json!({
            "temperature_c": self.now.map(|now| now.celsius),
            "temperature_max_c": self.highest.map(|highest| highest.celsius),
            "temperature_limit_c": self.highest.and_then(|highest| highest.limit_c),
            "heat_looks": readings(self.readings),
            "hot_looks": readings(self.hot_readings),
            "low_voltage_looks": self.firmware.as_ref().and_then(|_| readings(self.low_voltage_readings)),
        }))
    }

    /// The highest temperature counts from now on.
    pub fn restart_highest(&mut self) {
        self.highest = self.now;
    }

    fn read_sensors(&mut self, now: Instant) {
        self.next_read = now + READ_INTERVAL;
        let bits = self
            .firmware
            .as_deref()
            .and_then(read_text)
            .and_then(|bits| u32::from_str_radix(bits.trim_start_matches("0x"), 16).ok())
            .unwrap_or(0);
        let current = Reading {
            events: self.counters.iter().filter_map(|p| read_number(p)).sum(),
            sticky: bits >> STICKY_SHIFT,
        };
        let last_reading = self.last_reading.replace(current);
        self.now = self
            .zones
            .iter()
            .filter_map(Zone::temperature)
            .max_by(|a, b| a.margin_c().total_cmp(&b.margin_c()).reverse());
        self.highest = self
            .highest
            .into_iter()
            .chain(self.now)
            .max_by(|a, b| a.celsius.total_cmp(&b.celsius));
        let Some(last_reading) = last_reading else {
            return; // the first look of all
        };
        let new_bits = current.sticky & !last_reading.sticky;
        let hot = (bits | new_bits) & THROTTLED != 0
            || current.events > last_reading.events
            || self.coolers.iter().any(|p| read_number(p) > Some(0))
            || self.now.is_some_and(|now| now.margin_c() <= 0.0);
        self.readings += 1;
        self.hot_readings += u64::from(hot);
        self.low_voltage_readings += u64::from((bits | new_bits) & LOW_VOLTAGE != 0);
    }
}

impl Zone {
    /// A zone of processors; other zones (radios, batteries) say nothing about them.
    fn read(path: &Path, highest_limit_c: f64) -> Option<Self> {
        const PROCESSOR_ZONES: [&str; 5] = ["cpu", "soc", "x86_pkg", "acpitz", "bcm2835"];
        let name = read_text(&path.join("type"))?.to_lowercase();
        if !PROCESSOR_ZONES.iter().any(|part| name.contains(part)) {
            return None;
        }
        let limit_c = children(path, "trip_point_")
            .iter()
            .filter_map(|file| {
                let trip = file.to_str()?.strip_suffix("_type")?;
                let kind = read_text(file)?;
                matches!(kind.as_str(), "passive" | "hot" | "critical")
                    .then(|| read_celsius(Path::new(&format!("{trip}_temp"))))?
            })
            .filter(|trip_c| *trip_c >= LEAST_LIMIT_C)
            .fold(highest_limit_c, f64::min);
        Some(Self {
            file: path.join("temp"),
            limit_c: limit_c.is_finite().then_some(limit_c),
        })
    }

    fn temperature(&self) -> Option<Temperature> {
        Some(Temperature {
            celsius: read_celsius(&self.file)?,
            limit_c: self.limit_c,
        })
    }
}

impl Temperature {
    /// How far it is below the limit; infinite without one.
    fn margin_c(self) -> f64 {
        self.limit_c
            .map_or(f64::INFINITY, |limit_c| limit_c - self.celsius)
    }
}

/// Names of cooling devices that are processors (Linux, `cpufreq_cooling.c` and `processor_thermal.c`);
/// others are fans.
fn slows_processors(name: &str) -> bool {
    name.starts_with("cpufreq") || name.starts_with("thermal-cpufreq") || name == "Processor"
}

/// Entries of a directory whose names begin so, in order; none if it is not there.
fn children(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

fn read_text(file: &Path) -> Option<String> {
    let content = fs::read_to_string(file).ok()?;
    Some(content.trim_end_matches(['\0', '\n']).to_owned())
}

fn read_number(file: &Path) -> Option<u64> {
    read_text(file)?.parse().ok()
}

/// A temperature in thousandths of a degree.
fn read_celsius(file: &Path) -> Option<f64> {
    Some(read_text(file)?.parse::<i32>().ok()?).map(|thousandths| f64::from(thousandths) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sysfs of our own.
    struct Sysfs(PathBuf);

    impl Sysfs {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("atoll-{name}-{}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Self(root)
        }

        fn write(&self, file: &str, content: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{content}\n")).unwrap();
        }

        fn heat(&self) -> Heat {
            Heat::find(&self.0, Instant::now())
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    fn hot_readings(heat: &mut Heat) -> u64 {
        heat.sample(Instant::now())["hot_looks"].as_u64().unwrap()
    }

    #[test]
    fn a_machine_without_sensors_is_never_looked_at() {
        let sysfs = Sysfs::new("no-sensors");
        sysfs.write("class/thermal/cooling_device0/type", "pwm-fan");
        sysfs.write("class/thermal/cooling_device0/cur_state", "3");
        sysfs.write("class/thermal/thermal_zone0/type", "iwlwifi_1");
        sysfs.write("class/thermal/thermal_zone0/temp", "99000");
        let mut heat = sysfs.heat();
        assert_eq!(heat.wake_at(), None);
        let sample = heat.sample(Instant::now());
        assert!(sample.values().all(Value::is_null), "{sample:?}");
    }

    #[test]
    fn a_temperature_is_too_high_from_its_own_limit_on() {
        let sysfs = Sysfs::new("zone");
        let zone = |file: &str, content: &str| {
            sysfs.write(&format!("class/thermal/thermal_zone0/{file}"), content);
        };
        zone("type", "acpitz");
        zone("temp", "71500");
        zone("trip_point_0_type", "critical");
        zone("trip_point_0_temp", "105000");
        zone("trip_point_1_type", "passive");
        zone("trip_point_1_temp", "95000");
        zone("trip_point_2_type", "passive");
        zone("trip_point_2_temp", "20800"); // a placeholder
        zone("trip_point_3_type", "active");
        zone("trip_point_3_temp", "60000"); // a fan's
        let mut heat = sysfs.heat();
        let sample = heat.sample(Instant::now());
        assert_eq!(sample["temperature_c"], 71.5);
        assert_eq!(sample["temperature_limit_c"], 95.0);
        assert_eq!(sample["hot_looks"], 0);
        zone("temp", "95000");
        assert_eq!(hot_readings(&mut heat), 1);
        zone("temp", "60000");
        let sample = heat.sample(Instant::now());
        assert_eq!(sample["hot_looks"], 1);
        assert_eq!(sample["temperature_max_c"], 95.0);
        heat.restart_highest();
        assert_eq!(heat.sample(Instant::now())["temperature_max_c"], 60.0);
    }

    #[test]
    fn a_raspberry_pi_says_by_bits_that_it_is_throttled() {
        let sysfs = Sysfs::new("raspberry");
        sysfs.write(
            "firmware/devicetree/base/model",
            "Raspberry Pi 4 Model B Rev 1.4\0",
        );
        sysfs.write("class/thermal/thermal_zone0/type", "cpu-thermal");
        sysfs.write("class/thermal/thermal_zone0/temp", "79000");
        sysfs.write("class/thermal/thermal_zone0/trip_point_0_type", "critical");
        sysfs.write("class/thermal/thermal_zone0/trip_point_0_temp", "110000");
        let bits = "devices/platform/soc/soc:firmware/get_throttled";
        sysfs.write(bits, "e0000"); // at some time before
        let mut heat = sysfs.heat();
        let sample = heat.sample(Instant::now());
        assert_eq!(sample["temperature_limit_c"], 80.0);
        assert_eq!(sample["hot_looks"], 0, "what was before is not counted");
        sysfs.write(bits, "e0004");
        assert_eq!(hot_readings(&mut heat), 1);
        sysfs.write(bits, "f0000"); // between two looks
        let sample = heat.sample(Instant::now());
        assert_eq!(sample["hot_looks"], 1);
        assert_eq!(sample["low_voltage_looks"], 1);
    }

    #[test]
    fn an_intel_processor_counts_and_a_cooling_device_has_a_state() {
        let sysfs = Sysfs::new("intel");
        let count = "devices/system/cpu/cpu0/thermal_throttle/core_throttle_count";
        sysfs.write(count, "17");
        let mut heat = sysfs.heat();
        assert_eq!(hot_readings(&mut heat), 0);
        sysfs.write(count, "18");
        assert_eq!(hot_readings(&mut heat), 1);
        assert_eq!(hot_readings(&mut heat), 1);
        sysfs.write("class/thermal/cooling_device0/type", "cpufreq-cpu0");
        sysfs.write("class/thermal/cooling_device0/cur_state", "2");
        let mut heat = sysfs.heat();
        assert_eq!(hot_readings(&mut heat), 1);
    }

    #[test]
    fn a_look_is_taken_every_five_seconds() {
        let sysfs = Sysfs::new("timing");
        sysfs.write("class/thermal/thermal_zone0/type", "x86_pkg_temp");
        sysfs.write("class/thermal/thermal_zone0/temp", "40000");
        let begin = Instant::now();
        let mut heat = Heat::find(&sysfs.0, begin);
        assert_eq!(heat.wake_at(), Some(begin + READ_INTERVAL));
        heat.read_when_due(begin + READ_INTERVAL / 2);
        assert_eq!(heat.readings, 0);
        heat.read_when_due(begin + READ_INTERVAL);
        assert_eq!(heat.readings, 1);
        assert_eq!(heat.wake_at(), Some(begin + 2 * READ_INTERVAL));
    }
}
