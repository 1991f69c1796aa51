// Decodes columns: deltas as zigzag varints, deflated. `crates/view/src/html/encode.rs` encodes them.

export async function decode(deflated: Uint8Array<ArrayBuffer>, length: number): Promise<Float64Array> {
  if (typeof DecompressionStream === "undefined") throw new Error("it needs a browser from 2023 or later");
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const numbers = new Float64Array(length);
  let at = 0;
  let value = 0;
  for (let index = 0; index < length; index++) {
    // Numbers beyond 53 bits lose precision here; the page would not display it either.
    let zigzag = 0;
    let scale = 1;
    let byte: number;
    do {
      const next = bytes[at++];
      if (next === undefined) throw new Error("a column is truncated");
      byte = next;
      zigzag += (byte & 0x7f) * scale;
      scale *= 128;
    } while (byte >= 0x80);
    value += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
    numbers[index] = value;
  }
  return numbers;
}
