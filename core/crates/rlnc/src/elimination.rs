// SPDX-License-Identifier: Apache-2.0
//! Gaussian elimination on arrival.
//!
//! Only coefficients are eliminated when a repair packet arrives: its *row* is reduced by those of the others and
//! remembers, in `mix`, of which repair symbols it is made. Symbols are touched twice: the sources that are known are
//! subtracted from a useful one at once, and when a row has a single unknown left, that one is the mix of repair
//! symbols. This is as many multiply-adds as encoding needs: w * n, if w of n are lost.

use atoll_gf256::{Arithmetic, Field, Term};

use crate::errors::CodeError;
use crate::spare::{SpareBuffers, SpareTerms, extend_with_zeros, longest};
use crate::symbol;

/// Bytes of a vector register: rows have so many, zeros at the end, for short ones would be computed byte by byte.
const REGISTER: usize = 32;

/// The unknowns are columns, numbered from 0.
#[derive(Debug)]
pub(crate) struct Elimination {
    arithmetic: Arithmetic,
    columns: usize,
    /// At least so many; those of earlier generations stay, since making them one by one takes time.
    known: Vec<Option<Vec<u8>>>,
    rows: Vec<Row>,
    repairs: Vec<Option<Repair>>,
    recovered: Vec<usize>,
    damaged: bool,
    spare: Spare,
}

/// Buffers of what is over, at most as many as were once in use together.
#[derive(Debug, Default)]
struct Spare {
    symbols: SpareBuffers,
    /// Of coefficients and mixes.
    rows: SpareBuffers,
    terms: SpareTerms,
    factors: Vec<u8>,
    solved: Vec<usize>,
    solved_symbols: Vec<(usize, Vec<u8>)>,
}

/// An equation in reduced row echelon form: no other row has a coefficient at its pivot.
#[derive(Debug)]
struct Row {
    /// A coefficient for each column; then, by slot, factors of the repair symbols, whose sum belongs to these
    /// coefficients. Together, since both undergo the same operations; as many factors as were once needed.
    values: Vec<u8>,
    pivot: usize,
    /// A further column with a coefficient, when it was last looked for: as long as it has one, the row has no solution.
    other: usize,
}

impl Row {
    fn new(values: Vec<u8>, pivot: usize) -> Self {
        Self {
            values,
            pivot,
            other: pivot,
        }
    }

    fn is_solved(&mut self, columns: usize) -> bool {
        if self.other == self.pivot || self.values[self.other] == 0 {
            // from the right, for pivots are the leftmost columns, and leave
            let mut columns = self.values[..columns].iter().enumerate().rev();
            let other =
                columns.find(|(column, coefficient)| **coefficient != 0 && *column != self.pivot);
            self.other = other.map_or(self.pivot, |(column, _)| column);
        }
        self.other == self.pivot
    }
}

#[derive(Debug)]
struct Repair {
    symbol: Vec<u8>,
    /// Of the sources that are not subtracted from the symbol.
    coefficients: Vec<u8>,
}

impl Elimination {
    pub(crate) fn new(field: Field, columns: usize) -> Self {
        Self {
            arithmetic: Arithmetic::new(field),
            columns,
            known: vec![None; columns],
            rows: Vec::new(),
            repairs: Vec::new(),
            recovered: Vec::new(),
            damaged: false,
            spare: Spare::default(),
        }
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Have at least so many columns.
    pub(crate) fn grow(&mut self, columns: usize) {
        if columns > self.columns {
            let new = std::iter::repeat_n(0, columns - self.columns);
            for row in &mut self.rows {
                row.values.splice(self.columns..self.columns, new.clone());
            }
            self.columns = columns;
        }
        if columns > self.known.len() {
            self.known.resize(columns, None);
        }
    }

    pub(crate) fn known(&self, column: usize) -> Option<&[u8]> {
        self.known.get(column)?.as_deref()
    }

    pub(crate) fn rank(&self) -> usize {
        self.rows.len() + self.known.iter().flatten().count()
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Show the columns solved since the last call, and their symbols.
    pub(crate) fn each_recovered(&mut self, mut show: impl FnMut(usize, &[u8])) {
        for column in self.recovered.drain(..) {
            if let Some(symbol) = &self.known[column] {
                show(column, symbol);
            }
        }
    }

    /// An empty buffer for coefficients.
    pub(crate) fn spare_row(&mut self) -> Vec<u8> {
        self.spare.rows.take()
    }

    /// One that is not needed.
    pub(crate) fn give_back_row(&mut self, row: Vec<u8>) {
        self.spare.rows.give_back(row);
    }

    /// A column is known by its packet. False if it was before.
    pub(crate) fn learn(&mut self, column: usize, packet: &[u8]) -> Result<bool, CodeError> {
        if self.known[column].is_some() {
            return Ok(false);
        }
        let mut symbol = self.spare.symbols.take();
        symbol::fill(&mut symbol, packet)?;
        self.known[column] = Some(symbol);
        if !self.rows.is_empty() {
            self.clear_column(column);
            self.solve()?;
        }
        Ok(true)
    }

    /// Take an equation. False if it follows from the others.
    pub(crate) fn insert(
        &mut self,
        coefficients: Vec<u8>,
        symbol: &[u8],
    ) -> Result<bool, CodeError> {
        if self.damaged {
            self.give_back_row(coefficients);
            return Err(CodeError::Damaged);
        }
        let slot = self.free_slot();
        let mut reduced = self.spare_row();
        reduced.extend_from_slice(&coefficients);
        let factors = self.columns + self.repairs.len().max(slot + 1);
        reduced.resize(factors.next_multiple_of(REGISTER), 0);
        reduced[self.columns + slot] = 1;
        for (coefficient, known) in reduced[..self.columns].iter_mut().zip(&self.known) {
            if known.is_some() {
                *coefficient = 0;
            }
        }
        // A row has no coefficient at the others' pivots, so all factors are known beforehand.
        let mut factors = std::mem::take(&mut self.spare.factors);
        factors.clear();
        factors.extend(self.rows.iter().map(|row| reduced[row.pivot]));
        self.add_rows(&mut reduced, &factors);
        self.spare.factors = factors;
        let Some(pivot) = self.first_unknown(&reduced) else {
            for row in [coefficients, reduced] {
                self.give_back_row(row);
            }
            return Ok(false);
        };
        let mut copy = self.spare.symbols.take();
        copy.extend_from_slice(symbol);
        if slot == self.repairs.len() {
            self.repairs.push(None);
        }
        self.repairs[slot] = Some(Repair {
            symbol: copy,
            coefficients,
        });
        self.subtract_known(slot);
        self.insert_row(Row::new(reduced, pivot));
        self.solve()?;
        Ok(true)
    }

    /// Give up a column: what is known about it, and one equation that contains it.
    pub(crate) fn forget(&mut self, column: usize) {
        // Repair symbols that contain the column must not when it is used again.
        for slot in 0..self.repairs.len() {
            self.subtract_known(slot);
        }
        if let Some(symbol) = self.known[column].take() {
            self.spare.symbols.give_back(symbol);
        }
        self.recovered.retain(|recovered| *recovered != column);
        let at_pivot = self.rows.iter().position(|row| row.pivot == column);
        let holder = at_pivot.or_else(|| self.rows.iter().position(|row| row.values[column] != 0));
        if let Some(holder) = holder {
            let mut row = self.rows.swap_remove(holder);
            row.pivot = column;
            self.insert_row(row);
            if let Some(row) = self.rows.pop() {
                self.release(row);
            }
        }
        // In what is left of the equations its factors cancel out.
        for repair in self.repairs.iter_mut().flatten() {
            if let Some(coefficient) = repair.coefficients.get_mut(column) {
                *coefficient = 0;
            }
        }
        self.release_repairs();
    }

    /// Forget everything but the number of columns.
    pub(crate) fn clear(&mut self) {
        self.clear_equations();
        self.recovered.clear();
        for symbol in self.known.iter_mut().filter_map(Option::take) {
            self.spare.symbols.give_back(symbol);
        }
        self.damaged = false;
    }

    /// Have no columns, as in the beginning.
    pub(crate) fn restart(&mut self) {
        self.clear();
        self.columns = 0;
    }

    fn clear_equations(&mut self) {
        while let Some(row) = self.rows.pop() {
            self.release(row);
        }
        for repair in self.repairs.drain(..).flatten() {
            self.spare.symbols.give_back(repair.symbol);
            self.spare.rows.give_back(repair.coefficients);
        }
    }

    fn release(&mut self, row: Row) {
        self.spare.rows.give_back(row.values);
    }

    fn free_slot(&self) -> usize {
        self.repairs
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.repairs.len())
    }

    /// The first column of which a row has a coefficient.
    fn first_unknown(&self, values: &[u8]) -> Option<usize> {
        values[..self.columns].iter().position(|value| *value != 0)
    }

    fn add_rows(&mut self, sum: &mut [u8], factors: &[u8]) {
        let mut terms = self.spare.terms.take();
        terms.extend(
            (self.rows.iter().zip(factors))
                .filter(|(_, factor)| **factor != 0)
                .map(|(row, factor)| Term {
                    source: &row.values,
                    factor: *factor,
                }),
        );
        self.arithmetic.add_products(sum, &mut terms);
        self.spare.terms.give_back(terms);
    }

    /// Append a row with a coefficient at its pivot, and clear that column in the others.
    fn insert_row(&mut self, mut row: Row) {
        let inverse = self
            .arithmetic
            .field()
            .inverse(row.values[row.pivot])
            .unwrap_or(1);
        self.arithmetic.scale(&mut row.values, inverse);
        for other in &mut self.rows {
            let factor = other.values[row.pivot];
            if factor != 0 {
                add(self.arithmetic, &mut other.values, &row.values, factor);
            }
        }
        self.rows.push(row);
    }

    /// A column is no unknown any more. The row whose pivot it was gets another one, or has nothing left to say.
    fn clear_column(&mut self, column: usize) {
        let mut holder = None;
        for (number, row) in self.rows.iter_mut().enumerate() {
            row.values[column] = 0;
            if row.pivot == column {
                holder = Some(number);
            }
        }
        if let Some(number) = holder {
            let mut row = self.rows.swap_remove(number);
            if let Some(pivot) = self.first_unknown(&row.values) {
                row.pivot = pivot;
                self.insert_row(row);
            } else {
                self.release(row);
                self.release_repairs();
            }
        }
    }

    /// Compute the columns whose row has no other unknown.
    fn solve(&mut self) -> Result<(), CodeError> {
        let mut solved = std::mem::take(&mut self.spare.solved);
        solved.clear();
        let rows = self.rows.iter_mut().enumerate();
        solved
            .extend(rows.filter_map(|(number, row)| row.is_solved(self.columns).then_some(number)));
        let result = if solved.is_empty() {
            Ok(())
        } else {
            self.solve_rows(&solved)
        };
        self.spare.solved = solved;
        result
    }

    /// Compute the columns of these rows, in the order of the rows.
    fn solve_rows(&mut self, solved: &[usize]) -> Result<(), CodeError> {
        for slot in 0..self.repairs.len() {
            if solved
                .iter()
                .any(|number| entry(&self.rows[*number].values, self.columns + slot) != 0)
            {
                self.subtract_known(slot);
            }
        }
        // From the last on, so that numbers stay. None is learned before all are computed: see `subtract_known`.
        let mut symbols = std::mem::take(&mut self.spare.solved_symbols);
        for number in solved.iter().rev() {
            let row = self.rows.swap_remove(*number);
            let mut symbol = self.spare.symbols.take();
            let mixed = self.mix(&row.values[self.columns..], &mut symbol);
            symbols.push((row.pivot, symbol));
            self.release(row);
            if let Err(error) = mixed {
                self.damaged = true;
                self.clear_equations();
                for (_, symbol) in symbols {
                    self.spare.symbols.give_back(symbol);
                }
                return Err(error);
            }
        }
        for (column, symbol) in symbols.drain(..) {
            self.known[column] = Some(symbol);
            self.recovered.push(column);
        }
        self.spare.solved_symbols = symbols;
        self.release_repairs();
        Ok(())
    }

    /// Put the mix of repair symbols, which must be a packet's symbol, into `sum`, which is empty.
    fn mix(&mut self, mix: &[u8], sum: &mut Vec<u8>) -> Result<(), CodeError> {
        let mut terms = self.spare.terms.take();
        terms.extend(
            (self.repairs.iter().zip(mix))
                .filter(|(_, factor)| **factor != 0)
                .filter_map(|(repair, factor)| {
                    Some(Term {
                        source: &repair.as_ref()?.symbol,
                        factor: *factor,
                    })
                }),
        );
        extend_with_zeros(sum, longest(&terms));
        self.arithmetic.add_products(sum, &mut terms);
        self.spare.terms.give_back(terms);
        symbol::trim(sum)
    }

    /// Subtract the known sources from a repair symbol. Symbols that are mixed must have the same ones subtracted.
    fn subtract_known(&mut self, slot: usize) {
        let Some(Repair {
            symbol,
            coefficients,
        }) = &mut self.repairs[slot]
        else {
            return;
        };
        let mut terms = self.spare.terms.take();
        for (coefficient, known) in coefficients.iter_mut().zip(&self.known) {
            if let (1.., Some(known)) = (*coefficient, known) {
                terms.push(Term {
                    source: known,
                    factor: std::mem::take(coefficient),
                });
            }
        }
        // A longer source is damaged, or another generation's: what the symbol is mixed into will not be a packet.
        symbol.resize(longest(&terms).max(symbol.len()), 0);
        self.arithmetic.add_products(symbol, &mut terms);
        self.spare.terms.give_back(terms);
    }

    /// Drop the repair symbols of which no row is made.
    fn release_repairs(&mut self) {
        for (slot, repair) in self.repairs.iter_mut().enumerate() {
            let factor = self.columns + slot;
            if self.rows.iter().all(|row| entry(&row.values, factor) == 0) {
                if let Some(repair) = repair.take() {
                    self.spare.symbols.give_back(repair.symbol);
                    self.spare.rows.give_back(repair.coefficients);
                }
            }
        }
    }
}

fn entry(row: &[u8], column: usize) -> u8 {
    row.get(column).copied().unwrap_or(0)
}

fn add(arithmetic: Arithmetic, sum: &mut Vec<u8>, row: &[u8], factor: u8) {
    if sum.len() < row.len() {
        sum.resize(row.len(), 0);
    }
    arithmetic.add_product(sum, row, factor);
}
