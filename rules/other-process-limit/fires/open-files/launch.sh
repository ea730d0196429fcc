python3 -m verl.trainer.main_ppo \
    data.train_files=/data/train.parquet \
    data.dataloader_num_workers=16 \
    trainer.nnodes=1
