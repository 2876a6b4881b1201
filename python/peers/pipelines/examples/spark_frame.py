from pyspark.sql import SparkSession

import gpufleet as gf
from gpufleet.arrow import batch_map
from gpufleet.spark import map_in_arrow

spark = SparkSession.builder.getOrCreate()
frame = spark.range(1000).selectExpr("id", "float(id) AS price", "float(2 * id) AS fee")

with gf.Fleet() as fleet:
    saxpy = batch_map(fleet.kernel("saxpy"), ["price", "fee"], out="total", a=2.0)
    rows = map_in_arrow(frame, saxpy).where("total <> 4 * id").count()

assert rows == 0
