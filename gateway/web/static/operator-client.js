// The operators' routes for a browser, and what their refusals mean to a person. No DOM in here.
//
// Every act may be sent again without harm: a resolution that is there gives the same answer, a setting that is set stays set, and what was
// created is refused as being there. So a fault whose outcome is not known needs one sentence only.
import { GatewayClient, ProblemError, Unreachable } from "./gateway-client.js";

const BASE = "/api/operator";

/** What a person reads about a fault. `runs`: the runs that are in the way. `signedOut`: nobody is signed in any more.
 * @typedef {{text: string, next: string, signedOut: boolean, runs: {run_id: string, execution: string, persistence: string}[]}} Words */

const NEXT = {
  never: "",
  later: "Try again later.",
  "same-submission": "Do it again in a moment: nothing is done twice.",
  "new-submission": "Change it and try again.",
  "poll-run": "Wait for the run that is in the way.",
  operator: "",
};

/** @param {unknown} error @returns {Words} */
export function wordsOf(error) {
  const words = { text: "", next: "", signedOut: false, runs: [] };
  if (error instanceof Unreachable) {
    return { ...words, text: "The gateway did not answer, so it is not known whether this arrived.", next: "Check the connection and do it again: nothing is done twice." };
  }
  if (!(error instanceof ProblemError)) return { ...words, text: "This page met an unexpected fault.", next: "Reload it." };
  const { problem } = error;
  if (problem.code === "unauthenticated") {
    return { ...words, text: "Your session is over.", next: "Sign in again in another tab, then do this again. What you wrote is kept.", signedOut: true };
  }
  const parts = [problem.detail];
  if (problem.field && problem.rule) parts.push(`${problem.field}: ${problem.rule.replace(/\.?$/, ".")}`);
  else if (problem.field) parts.push(`It is about: ${problem.field}.`);
  return { ...words, text: parts.join(" "), next: NEXT[problem.retry] ?? "", runs: problem.runs ?? [] };
}

export class OperatorClient {
  constructor(client = new GatewayClient()) {
    this.client = client;
  }

  me() {
    return this.client.me();
  }

  /** GET below /api/operator. @param {string} path @param {Record<string, string|null|undefined>} [query] What is null or empty is left out. */
  read(path, query = {}, signal = undefined) {
    const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
    const search = new URLSearchParams(given).toString();
    return this.client.json("GET", `${BASE}${path}${search ? `?${search}` : ""}`, undefined, signal);
  }

  /** An act below /api/operator. @param {"POST"|"PUT"|"PATCH"|"DELETE"} method @param {string} path @param {object} [body] */
  act(method, path, body) {
    return this.client.json(method, `${BASE}${path}`, body);
  }

  demoUsers() {
    return this.client.json("GET", "/demo/users").then(({ users }) => users);
  }

  signIn(subject) {
    return this.client.json("POST", "/demo/session", { subject });
  }

  signOut() {
    return this.client.json("DELETE", "/demo/session");
  }
}
