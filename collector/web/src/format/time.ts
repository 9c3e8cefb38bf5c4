/** Moments as people read them, always in UTC. */

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const LONG_MONTHS = [
  "January", "February", "March", "April", "May", "June",
  "July", "August", "September", "October", "November", "December",
];
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const two = (n: number): string => String(n).padStart(2, "0");

/** `21 Nov 14:32:07 UTC`, with the year when it is not this one. */
export function fullTime(moment: Date, now: Date = new Date()): string {
  const year = moment.getUTCFullYear() === now.getUTCFullYear() ? "" : ` ${moment.getUTCFullYear()}`;
  const day = `${moment.getUTCDate()} ${MONTHS[moment.getUTCMonth()]}${year}`;
  return `${day} ${two(moment.getUTCHours())}:${two(moment.getUTCMinutes())}:${two(moment.getUTCSeconds())} UTC`;
}

/** Relative under 24 hours, else the full form. */
export function ago(moment: Date, now: Date = new Date()): string {
  const age = now.getTime() - moment.getTime();
  if (age >= DAY) return fullTime(moment, now);
  if (age < -MINUTE) return inFuture(-age);
  if (age < 5_000) return "now";
  if (age < MINUTE) return `${Math.floor(age / 1000)} s ago`;
  if (age < HOUR) return `${Math.floor(age / MINUTE)} min ago`;
  return `${Math.floor(age / HOUR)} h ago`;
}

function inFuture(ms: number): string {
  if (ms < HOUR) return `in ${Math.ceil(ms / MINUTE)} min`;
  return `in ${Math.round(ms / HOUR)} h`;
}

/** The heading of a day in a list: `Today, 21 November`. */
export function dayHeading(moment: Date, now: Date = new Date()): string {
  const days = Math.floor(now.getTime() / DAY) - Math.floor(moment.getTime() / DAY);
  const name = `${moment.getUTCDate()} ${LONG_MONTHS[moment.getUTCMonth()]}`;
  if (days === 0) return `Today, ${name}`;
  if (days === 1) return `Yesterday, ${name}`;
  return moment.getUTCFullYear() === now.getUTCFullYear() ? name : `${name} ${moment.getUTCFullYear()}`;
}

/** `every 5 min`, `every 2 h`. */
export function interval(seconds: number): string {
  if (seconds % 3600 === 0) return `every ${seconds / 3600} h`;
  if (seconds % 60 === 0) return `every ${seconds / 60} min`;
  return `every ${seconds} s`;
}

export function parseTime(value: string | null | undefined): Date | null {
  if (!value) return null;
  const moment = new Date(value);
  return Number.isNaN(moment.getTime()) ? null : moment;
}
