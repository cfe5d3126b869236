import { crc32, deflateSync } from "node:zlib";
import type { Page } from "@playwright/test";

/** Returns a screenshot of a page as PNG with the 256 most frequent colours. Each pixel has the nearest of them. */
export async function takeSmallScreenshot(page: Page): Promise<Buffer> {
  const screenshot = await page.screenshot();
  const { width, height, palette, pixels } = await page.evaluate(reduceColours, screenshot.toString("base64"));
  const size = Buffer.alloc(8);
  size.writeUInt32BE(width, 0);
  size.writeUInt32BE(height, 4);
  const indexes = Buffer.from(pixels, "latin1");
  const rows = Array.from({ length: height }, (_, y) => Buffer.concat([Buffer.of(0), indexes.subarray(y * width, (y + 1) * width)])); // 0: no filter
  return Buffer.concat([
    Buffer.from("\x89PNG\r\n\x1a\n", "latin1"),
    chunk("IHDR", Buffer.concat([size, Buffer.of(8, 3, 0, 0, 0)])), // 8 bits per pixel, an index of the palette
    chunk("PLTE", Buffer.from(palette.flat())),
    chunk("IDAT", deflateSync(Buffer.concat(rows), { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

/** Returns a chunk of a PNG: the length of the data, the type and the data, and their checksum. */
function chunk(type: string, data: Buffer): Buffer {
  const [length, content, checksum] = [Buffer.alloc(4), Buffer.concat([Buffer.from(type), data]), Buffer.alloc(4)];
  length.writeUInt32BE(data.length);
  checksum.writeUInt32BE(crc32(content));
  return Buffer.concat([length, content, checksum]);
}

/** Runs in the browser, which decodes the PNG. Returns one character per pixel: its code is an index of the palette. */
async function reduceColours(png: string) {
  const image = await createImageBitmap(new Blob([Uint8Array.from(atob(png), (character) => character.charCodeAt(0))]));
  const { width, height } = image;
  const canvas = new OffscreenCanvas(width, height).getContext("2d")!;
  canvas.drawImage(image, 0, 0);
  const colours = new Uint32Array(canvas.getImageData(0, 0, width, height).data.buffer);
  const counts = new Map<number, number>();
  for (const colour of colours) counts.set(colour, (counts.get(colour) ?? 0) + 1);
  const frequent = [...counts.keys()].sort((a, b) => counts.get(b)! - counts.get(a)!);
  const split = (colour: number) => [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255] as const;
  const palette = frequent.slice(0, 256).map(split);
  const distance = (a: readonly number[], b: readonly number[]) => a.reduce((sum, value, i) => sum + (value - b[i]!) ** 2, 0);
  const indexOf = new Map(
    frequent.map((colour, rank) => {
      const distances = rank < 256 ? [] : palette.map((other) => distance(split(colour), other));
      return [colour, String.fromCharCode(rank < 256 ? rank : distances.indexOf(Math.min(...distances)))];
    }),
  );
  return { width, height, palette, pixels: Array.from(colours, (colour) => indexOf.get(colour)!).join("") };
}
