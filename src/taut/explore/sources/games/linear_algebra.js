// Small dense matrices, as arrays of rows.
import { dot, norm } from "../softmax/vectors.js";

/** A y. @param {readonly (readonly number[])[]} A @param {readonly number[]} y */
export function timesColumn(A, y) {
  return A.map((row) => dot(row, y));
}

/** Aᵀ. @param {readonly (readonly number[])[]} A */
export function transposed(A) {
  return A[0].map((_, j) => A.map((row) => row[j]));
}

/**
 * The solution of A z = b by elimination with row pivots; NaN where A is singular.
 * @param {number[][]} A @param {number[]} b
 */
export function solveLinear(A, b) {
  const n = b.length;
  const rows = A.map((row, i) => [...row, b[i]]);
  for (let k = 0; k < n; k++) {
    let pivot = k;
    for (let i = k + 1; i < n; i++) if (Math.abs(rows[i][k]) > Math.abs(rows[pivot][k])) pivot = i;
    [rows[k], rows[pivot]] = [rows[pivot], rows[k]];
    for (let i = k + 1; i < n; i++) {
      const factor = rows[i][k] / rows[k][k];
      for (let j = k; j <= n; j++) rows[i][j] -= factor * rows[k][j];
    }
  }
  const z = Array(n).fill(0);
  for (let i = n - 1; i >= 0; i--) {
    let rest = rows[i][n];
    for (let j = i + 1; j < n; j++) rest -= rows[i][j] * z[j];
    z[i] = rest / rows[i][i];
  }
  return z;
}

/**
 * Eigenvalues of a symmetric matrix by Jacobi's rotations, largest first.
 * @param {readonly (readonly number[])[]} symmetric
 */
export function eigenvalues(symmetric) {
  const S = symmetric.map((row) => [...row]);
  const n = S.length;
  const size = norm(S.flat(), 2);
  for (let sweep = 0; sweep < 30; sweep++) {
    const off = norm(S.flatMap((row, i) => row.filter((_, j) => i !== j)), 2);
    if (!(off > 1e-18 * size)) break;
    for (let i = 0; i < n; i++) for (let j = i + 1; j < n; j++) rotate(S, i, j);
  }
  return S.map((row, i) => row[i]).sort((a, b) => b - a);
}

/** Rotate so that S[i][j] becomes 0. @param {number[][]} S @param {number} i @param {number} j */
function rotate(S, i, j) {
  if (S[i][j] === 0) return;
  const theta = (S[j][j] - S[i][i]) / (2 * S[i][j]);
  const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(theta, 1));
  const c = 1 / Math.hypot(t, 1);
  const s = t * c;
  for (let k = 0; k < S.length; k++) {
    [S[k][i], S[k][j]] = [c * S[k][i] - s * S[k][j], s * S[k][i] + c * S[k][j]];
  }
  for (let k = 0; k < S.length; k++) {
    [S[i][k], S[j][k]] = [c * S[i][k] - s * S[j][k], s * S[i][k] + c * S[j][k]];
  }
}

/** ‖A‖₂. @param {readonly (readonly number[])[]} A */
export function spectralNorm(A) {
  const size = norm(A.flat(), Infinity);
  if (size === 0) return 0;
  const scaled = A.map((row) => row.map((entry) => entry / size));
  return size * Math.sqrt(Math.max(eigenvalues(scaled.map((row) => timesColumn(scaled, row)))[0], 0));
}
